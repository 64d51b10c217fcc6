package main

import (
	"os"
	"runtime/debug"
)

// The collector's settings for a server, where the environment says nothing. The live heap of a
// server is small and its garbage short-lived, so at the default it is collected many times a second
// for nothing; the limit keeps a backlog from turning that into memory.
const (
	collectAt   = 300       // percent of the live heap
	memoryLimit = 160 << 20 // bytes; soft: the collector works harder near it
)

func tuneCollector() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(collectAt)
	}
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(memoryLimit)
	}
}
