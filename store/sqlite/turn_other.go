//go:build !unix

package sqlite

// turn does nothing on this platform: processes meet at SQLite's lock.
type turn struct{}

func openTurn(*file) (turn, error) { return turn{}, nil }

func (turn) take() bool { return true }

func (turn) give() {}

func (turn) close() error { return nil }
