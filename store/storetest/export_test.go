package storetest

import "testing"

// Play lets the tests of this package rewrite transcripts.
func Play(t *testing.T, backend Backend, text string) string {
	t.Helper()
	return play(newFixture(t, backend), text)
}
