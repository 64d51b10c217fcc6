package outbox

import (
	"context"
	"fmt"
)

// Environments keeps the name of the environment that a database belongs to: production, staging.
// A copy of a database carries the name of where it was copied from, and must not send what the
// original sends.
type Environments interface {
	// ClaimEnvironment names the database's environment unless it has a name, and returns the one
	// it has.
	ClaimEnvironment(ctx context.Context, name string) (string, error)
	// AdoptEnvironment gives the database another name, and returns the one it had, "" for none.
	AdoptEnvironment(ctx context.Context, name string) (former string, err error)
}

// In is the stop switch as a process of the given environment has to read it: stopped, whatever it
// says, where the database belongs to another one.
func (s DispatchState) In(environment string) DispatchState {
	if s.Environment == "" || s.Environment == environment {
		return s
	}
	return DispatchState{
		Paused: true, Foreign: true, Environment: s.Environment, At: s.At, By: "system",
		Reason: fmt.Sprintf("The database belongs to the environment %s and this server to %s. If it is a copy to go on with, run waybill adopt.", s.Environment, environment),
	}
}
