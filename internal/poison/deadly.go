//go:build poison

package poison

import (
	"bytes"
	"os"
)

// exitCode is told apart from every code the program itself ends with.
const exitCode = 86

// Attempted ends the process if the payload is marked.
func Attempted(payload []byte) { meet(payload, AttemptMark) }

// Routed ends the process if the payload is marked.
func Routed(payload []byte) { meet(payload, RouteMark) }

func meet(payload []byte, mark string) {
	if bytes.Contains(payload, []byte(mark)) {
		os.Exit(exitCode)
	}
}
