// Package await waits for runs to end: for callers of Client.Wait, for schedules
// whose next occurrence has to wait, and on the worker's side the runs whose end
// is to be announced. Signals make it quick; without them it polls.
//
// Begin reading at Hub.Wait.
package await
