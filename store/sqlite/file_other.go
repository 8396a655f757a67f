//go:build !linux

package sqlite

// On this platform a network file system is not recognised.
func refuseNetwork(string) error { return nil }

// On this platform SQLite itself finds out.
func refuseReadOnly(string) error { return nil }

// On this platform a file that is mounted alone is not recognised.
func refuseMounted(string) error { return nil }

// On this platform the space is not examined.
func freeSpace(string) (bytes uint64, known bool) { return 0, false }

// On this platform each process counts lease.Elapsed from its own start.
const sharedElapsed = false
