package lease

import "time"

var processStart = time.Now() //nolint:gochecknoglobals // origin of the monotonic clock, never changed

// Running is monotonic time since the process started. Unlike Elapsed it may pause while
// the machine is suspended, so nothing that a lease depends on may be decided by it; it
// is cheaper, for Elapsed is a call of the system each time. Only differences mean
// anything.
func Running() time.Duration { return time.Since(processStart) }
