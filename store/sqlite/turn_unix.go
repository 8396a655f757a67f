//go:build unix

package sqlite

import (
	"errors"
	"os"
	"syscall"
)

// turn is what processes take before they ask for the write lock and give up
// once they have it: whoever has just written must let the one go first who
// waits already. Without it a process that writes without a pause leaves the
// others only moments in which they may try.
//
// It is a lock of flock(2) on the write-ahead log, a file on which SQLite has
// no locks of its own, so that closing it takes none away. SQLite's locks
// alone keep the data whole; this one only makes for fairness, which
// TestAnotherProcess measures.
type turn struct {
	log *os.File
}

func openTurn(f *file) (turn, error) {
	log, err := os.Open(f.path + "-wal")
	return turn{log}, err
}

// take answers at once.
func (t turn) take() bool {
	for {
		err := syscall.Flock(int(t.log.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if !errors.Is(err, syscall.EINTR) {
			return !errors.Is(err, syscall.EWOULDBLOCK) // where there are no such locks, nobody waits for one
		}
	}
}

func (t turn) give() { _ = syscall.Flock(int(t.log.Fd()), syscall.LOCK_UN) }

func (t turn) close() error {
	if t.log == nil {
		return nil
	}
	return t.log.Close()
}
