package builtin

import (
	"errors"
	"math/rand/v2"
	"syscall"
	"time"

	"github.com/durable-worker/durable-worker/durable"
)

// starved reports whether the machine had nothing left to begin something with:
// file descriptors, processes or memory. That says nothing about the run.
func starved(err error) bool {
	for _, lack := range []syscall.Errno{syscall.EMFILE, syscall.ENFILE, syscall.EAGAIN, syscall.ENOMEM, syscall.ENOBUFS} {
		if errors.Is(err, lack) {
			return true
		}
	}
	return false
}

// notBegun puts a run back that the machine could not begin, and spends no
// attempt: for 5 to 15 seconds, so that those put back together do not come
// back together.
func notBegun[A any](run *durable.Run[A], err error) error {
	after := 5*time.Second + rand.N(10*time.Second) //nolint:gosec // spreads load
	run.Log().Warn("the machine has no resources left to start the command; no attempt is spent", "event", "machine.starved", "error", err, "again_in", after.Round(time.Millisecond).String())
	return durable.Snooze(after)
}
