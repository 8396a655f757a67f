package lease

import (
	"syscall"
	"time"
	"unsafe"
)

// clockBoottime is CLOCK_BOOTTIME of clock_gettime(2): it never steps, and
// unlike the monotonic clock it advances while the machine is suspended.
const clockBoottime = 7

// Elapsed is the worker's monotonic clock: the time since the machine started,
// including time spent suspended. Only differences mean anything.
func Elapsed() time.Duration {
	var ts syscall.Timespec
	if _, _, errno := syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, clockBoottime, uintptr(unsafe.Pointer(&ts)), 0); errno != 0 {
		return Running()
	}
	return time.Duration(ts.Nano())
}
