//go:build !race

package durabletest_test

// raced reports whether the race detector watches.
const raced = false
