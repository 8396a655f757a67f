//go:build !linux

package sqlite

// On this platform nothing tells other processes which log is in use.
func (f *file) otherLogs() (others, known bool) { return false, false }

func (f *file) noteLog() {}

func (f *file) unnoteLog() {}

// On this platform a file that is mounted alone is not recognised.
func refuseMountedAlone(string) error { return nil }
