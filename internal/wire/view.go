package wire

import (
	"github.com/durable-worker/durable-worker/store"
)

// RunView is a run as one role sees it.
type RunView struct {
	store.Record

	Hidden *Hidden `json:"hidden,omitempty"` // what is left out; nil: nothing is
}

// ScheduleView is a schedule as one role sees it.
type ScheduleView struct {
	store.ScheduleRecord

	Hidden *Hidden `json:"hidden,omitempty"` // what is left out; nil: nothing is
}

// Hidden says how many bytes of each part are left out.
type Hidden struct {
	Args       int `json:"args"`
	Result     int `json:"result"`
	Checkpoint int `json:"checkpoint"`
}

// WithoutArgs is a run without what the application has stored in it.
func WithoutArgs(r store.Record) RunView {
	hidden := &Hidden{Args: len(r.Args), Result: len(r.Result), Checkpoint: len(r.Checkpoint)}
	r.Args, r.Result, r.Checkpoint = nil, nil, nil
	return RunView{Record: r, Hidden: hidden}
}

// ScheduleWithoutArgs is a schedule without the args of its runs.
func ScheduleWithoutArgs(r store.ScheduleRecord) ScheduleView {
	hidden := &Hidden{Args: len(r.Args)}
	r.Args = nil
	return ScheduleView{ScheduleRecord: r, Hidden: hidden}
}
