package doctor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/waybill-dev/waybill/internal/config"
	"github.com/waybill-dev/waybill/internal/sqlite"
)

// leastFree is how much of the disk must be free, that an event can still be accepted after a busy
// night.
const leastFree = 1 << 30

// file examines a SQLite file and the disk it is on.
func file(ctx context.Context, path string) []Finding {
	dir := filepath.Dir(path)
	if abs, err := filepath.Abs(dir); err == nil {
		dir = abs // "." tells nobody anything
	}
	found := disk(dir)
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return append(found, Finding{Subject: "database", Grade: OK, Detail: path + " is not there yet; the first start makes it."})
	}
	if err != nil {
		return append(found, Finding{"database", Failure, path + " cannot be looked at.", err.Error()})
	}
	if info.Mode().Perm()&0o077 != 0 {
		found = append(found, Finding{"database", Warning, "Others on this machine may read " + path + ", which holds everybody's payloads.", "chmod 600 " + path})
	}
	store, err := sqlite.Open(ctx, sqlite.Config{Path: path})
	if err != nil {
		return append(found, Finding{"database", Failure, path + " cannot be opened.", err.Error()})
	}
	defer store.Close()
	vitals, err := store.Vitals(ctx, time.Now())
	if err != nil {
		return append(found, Finding{"database", Failure, path + " cannot be read.", err.Error()})
	}
	return append(found, tables(vitals)...)
}

// disk measures what making something durable costs there, and how much room there is.
func disk(dir string) []Finding {
	var found []Finding
	if free, ok := freeBytes(dir); ok {
		detail := fmt.Sprintf("%s is free in %s.", config.FormatSize(free), dir)
		if free < leastFree {
			found = append(found, Finding{"disk", Warning, detail, "A full disk refuses events until there is room again; nothing accepted is lost."})
		} else {
			found = append(found, Finding{Subject: "disk", Grade: OK, Detail: detail})
		}
	}
	median, err := fsync(dir)
	if err != nil {
		return append(found, Finding{"disk", Failure, "Nothing can be written in " + dir + ".", err.Error()})
	}
	detail := fmt.Sprintf("Making a write durable takes %v.", median)
	if median > slowCommit {
		return append(found, Finding{"commit", Warning, detail, "Events are accepted in batches, so this adds to latency more than to throughput."})
	}
	return append(found, Finding{Subject: "commit", Grade: OK, Detail: detail})
}

// fsync returns the median time to make a small write durable.
func fsync(dir string) (time.Duration, error) {
	probe, err := os.CreateTemp(dir, ".waybill-doctor-*")
	if err != nil {
		return 0, err
	}
	defer os.Remove(probe.Name())
	defer probe.Close()
	times := make([]time.Duration, 0, 9)
	block := make([]byte, 4096)
	for range cap(times) {
		began := time.Now()
		if _, err := probe.Write(block); err != nil {
			return 0, err
		}
		if err := probe.Sync(); err != nil {
			return 0, err
		}
		times = append(times, time.Since(began))
	}
	slices.Sort(times)
	return times[len(times)/2].Round(10 * time.Microsecond), nil
}
