package store

import (
	"fmt"
	"strings"
)

// JobInfo describes a job in the store, for those who enqueue without its code.
type JobInfo struct {
	Name        string      `json:"name"`
	Queue       string      `json:"queue"`
	Priority    int         `json:"priority"`
	MaxAttempts int         `json:"max_attempts"`
	Timeout     Duration    `json:"timeout"`
	OnCrash     CrashPolicy `json:"on_crash"`
	Retention   Duration    `json:"retention"` // of its ended runs; zero: the worker's, negative: forever
	Limits      []JobLimit  `json:"limits"`    // of its runs
	// Code is what the job's code says to programs that do not have it. Those that show
	// runs obey it.
	Code JobCode `json:"-"`
}

// JobCode is what the code of a job says to programs that show runs.
type JobCode struct {
	Aliases []string `json:"aliases,omitempty"` // its earlier names
	// OnDead is the job of which a run is stored for each death of a run; empty: none.
	OnDead   string   `json:"on_dead,omitempty"`
	Redacted []string `json:"redacted,omitempty"` // the paths into args, results and checkpoints that no one is shown; see CheckRedacted
}

// Names are those under which there may be runs of the job: its own, and its earlier ones.
func (j *JobInfo) Names() []string { return append([]string{j.Name}, j.Code.Aliases...) }

// CheckRedacted reports what is wrong with a path into args: members separated by dots, in
// any case, where * is any member, and ** before the rest any depth.
func CheckRedacted(path string) error {
	steps := strings.Split(path, ".")
	for i, step := range steps {
		if step == "" || step == "**" && (i > 0 || len(steps) == 1) {
			return fmt.Errorf("%q: want members separated by dots, such as card.number, *.token or **.password", path)
		}
	}
	return nil
}
