//go:build !linux

package sqlite

// On this platform a network file system is not recognised.
func refuseNetwork(string) error { return nil }

// On this platform SQLite itself finds out.
func refuseReadOnly(string) error { return nil }
