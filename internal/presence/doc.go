// Package presence reports workers to their stores: who is alive, what it serves, and
// what it did. Begin reading at reporter.go.
package presence
