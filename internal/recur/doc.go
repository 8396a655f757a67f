// Package recur decides what happens to a schedule that is due: which
// occurrences become runs, which are skipped, and when the next one is. It is
// pure but for the ids of the runs.
//
// Begin reading at Planner.Decide.
package recur
