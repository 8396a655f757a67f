package lock

// Until is until, for a clock of the test's own.
var Until = until //nolint:gochecknoglobals // for tests
