// Package chaos holds tests that run the real program in processes of its own
// and kill, pause, stop and cut off what it depends on. Its tests are the proof
// of the guarantees that a single process cannot show.
package chaos
