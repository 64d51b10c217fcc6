package outbox

import "testing"

func FuzzParseEventID(f *testing.F) {
	for _, seed := range []string{"", "evt_", "evt_01jd0000000000000000000000", "EVT_01jd0000000000000000000000", "evt_7zzzzzzzzzzzzzzzzzzzzzzzzz", "evt_8zzzzzzzzzzzzzzzzzzzzzzzzz", "dlv_01jd0000000000000000000000", "evt_01jd000000000000000000000l"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		id, err := ParseEventID(text)
		if err != nil {
			return
		}
		again, err := ParseEventID(id.String())
		if err != nil || again != id {
			t.Errorf("%q is %v, which reads as %v: %v", text, id, again, err)
		}
		if _, err := ParseEndpointID(text); err == nil {
			t.Errorf("%q is the id of two kinds of things", text)
		}
	})
}
