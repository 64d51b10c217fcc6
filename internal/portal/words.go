package portal

// chip is a state as people see it: always an icon, a word and a colour.
type chip struct{ Tone, Icon, Word string }

// stateChip is the chip of a delivery's state. What is pending says by its reason what it does.
func stateChip(state, waiting string, tried bool) chip {
	switch state {
	case "delivered":
		return chip{"ok", "ok", "Delivered"}
	case "dead":
		return chip{"bad", "bad", "Failed"}
	case "cancelled":
		return chip{"mute", "mute", "Cancelled"}
	}
	switch waiting {
	case "retry":
		return chip{"warn", "retry", "Retrying"}
	case "paused", "disabled", "dispatch_paused":
		return chip{"mute", "pause", "Paused"}
	}
	return chip{"wait", "wait", "Waiting"}
}
