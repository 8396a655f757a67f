// Package claimplan decides what a worker claims next: from which lanes, in which
// order, how many runs, and whether the heads of the lanes are read first.
//
// A worker records wake-ups in WakeUps. To claim, it takes them, asks Plan.Consider
// what to go by, reads the heads if it must (Plan.Read, Plan.SetHeads), sends a claim
// of Plan.Steps, and reports with Plan.ApplyClaim what the store has answered.
//
// The package is pure: it knows no store and no clock. Every instant is a reading of
// the worker's monotonic clock, given by the caller. A Plan belongs to one goroutine;
// WakeUps may be used by several.
package claimplan
