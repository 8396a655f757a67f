//go:build !linux

package lease

import "time"

// Elapsed is the worker's monotonic clock: monotonic time since the process started.
// On this platform it may stand still while the machine is suspended, so a
// worker that was suspended notices the loss of its leases only from the
// store's answers. Only differences mean anything.
func Elapsed() time.Duration { return Running() }
