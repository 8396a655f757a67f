//go:build unix

package sqlite

import (
	"errors"
	"os"
	"syscall"
)

// fileLock is what processes take before they ask for the write lock and give up
// once they have it: who has just written must let the one go first who
// waits already. Without it a process that writes without a pause leaves the
// others only moments in which they may try.
//
// It is a lock of flock(2) on the write-ahead log, a file on which SQLite has
// no locks of its own, so that closing it takes none away. SQLite's locks
// alone keep the data whole; this one only makes for fairness, which
// TestAnotherProcess measures.
type fileLock struct {
	log *os.File
}

func openFileLock(f *file) (fileLock, error) {
	log, err := os.Open(f.path + "-wal")
	return fileLock{log}, err
}

// take answers immediately.
func (t fileLock) take() bool {
	for {
		err := syscall.Flock(int(t.log.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if !errors.Is(err, syscall.EINTR) {
			return !errors.Is(err, syscall.EWOULDBLOCK) // where there are no such locks, no process waits for one
		}
	}
}

func (t fileLock) give() { _ = syscall.Flock(int(t.log.Fd()), syscall.LOCK_UN) }

func (t fileLock) close() error {
	if t.log == nil {
		return nil
	}
	return t.log.Close()
}
