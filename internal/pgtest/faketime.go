package pgtest

import (
	"errors"
	"fmt"
	"path/filepath"
	"testing"
	"time"
)

// StartAt starts a server for one test whose clock begins at an instant and runs
// from there, with Debian's libfaketime. Elapsed time is real.
func StartAt(tb testing.TB, at time.Time) *Cluster {
	tb.Helper()
	library, err := fakeTime()
	if err != nil {
		tb.Fatal(err)
	}
	offset := int64(time.Until(at).Seconds())
	return StartPrivate(tb, Options{Under: []string{
		"/usr/bin/env", "LD_PRELOAD=" + library, fmt.Sprintf("FAKETIME=%+ds", offset),
		"DONT_FAKE_MONOTONIC=1", "FAKETIME_DONT_FAKE_MONOTONIC=1", "NO_FAKE_STAT=1",
	}})
}

// fakeTime finds the library, for whatever processor.
func fakeTime() (string, error) {
	for _, pattern := range []string{"/usr/lib/*/faketime/libfaketime.so.1", "/usr/lib*/faketime/libfaketime.so.1", "/usr/local/lib/faketime/libfaketime.so.1"} {
		if found, _ := filepath.Glob(pattern); len(found) > 0 {
			return found[0], nil
		}
	}
	return "", errors.New("no libfaketime is installed; the tests need it:\n\n\tsudo apt-get install -y libfaketime")
}
