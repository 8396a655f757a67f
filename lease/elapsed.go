package lease

import "time"

var processStart = time.Now() //nolint:gochecknoglobals // origin of the monotonic clock, never changed

func monotonic() time.Duration { return time.Since(processStart) }
