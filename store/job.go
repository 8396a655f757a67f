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
	// Code is what only programs with the job's code know. Stores do not keep it.
	Code JobCode `json:"-"`
}

// JobCode is what the code of a job says to programs that show runs.
type JobCode struct {
	Aliases  []string // its earlier names
	Redacted []string // the paths into args, results and checkpoints that no one is shown; see CheckRedacted
}

// CheckRedacted reports what is wrong with a path into args: members separated by dots,
// where * is any member, and ** before the rest any depth.
func CheckRedacted(path string) error {
	steps := strings.Split(path, ".")
	for i, step := range steps {
		if step == "" || step == "**" && (i > 0 || len(steps) == 1) {
			return fmt.Errorf("%q: want members separated by dots, such as card.number, *.token or **.password", path)
		}
	}
	return nil
}
