//go:build !unix

package sqlite

// fileLock does nothing on this platform: processes meet at SQLite's lock.
type fileLock struct{}

func openFileLock(*file) (fileLock, error) { return fileLock{}, nil }

func (fileLock) take() bool { return true }

func (fileLock) give() {}

func (fileLock) close() error { return nil }
