//go:build race

package main

// The program under test looks for races where the tests do.
// Inside SQLite there is nothing of ours to find; see the Makefile.
func init() {
	buildFlags = append(buildFlags, "-race", "-gcflags=modernc.org/sqlite/lib=-race=false")
	settled = append(settled, "GORACE=atexit_sleep_ms=0") // else every command sleeps a second at its end
}
