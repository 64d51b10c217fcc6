// Package poison is where a test makes the process exit. Built without the tag "poison" it does
// nothing; built with it, a payload that holds AttemptMark ends the process which attempts to
// deliver it, and one that holds RouteMark the process which routes it.
package poison

// What a payload holds that kills.
const (
	AttemptMark = "kills-whoever-attempts-it"
	RouteMark   = "kills-whoever-routes-it"
)
