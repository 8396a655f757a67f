//go:build !race

package sqlite

// raceDetector tells whether this is a build with the race detector.
const raceDetector = false
