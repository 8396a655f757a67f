package store

import (
	"context"
	"errors"
	"fmt"
)

// Call is a request of a handler to have children executed, and to wait for their ends.
type Call struct {
	Holder
	Name     string   // of the step that waits
	Children []NewRun // at most MaxSources, with neither unique keys nor conditions: the name makes them once
}

// Caller stores children.
type Caller interface {
	// Call stores the children of calls, of any runs, and that the runs wait for them: all of it,
	// or nothing. A wait that is recorded for the first time begins a new stretch of the run's
	// life, as with BeginWait. It returns lease.ErrLost if one of the runs is no longer its
	// claim's, and ErrConflict while another transaction keeps one of them locked, or if a child
	// has the id of another run. A repeat finds the children, and changes nothing. No (run, name)
	// may come twice.
	Call(ctx context.Context, calls []Call) error
}

// CheckCalls reports what is wrong with calls, wrapped in ErrInvalid.
func CheckCalls(calls []Call) error {
	for i := range calls {
		if err := calls[i].check(); err != nil {
			return fmt.Errorf("call %q: %w: %w", calls[i].Name, ErrInvalid, err)
		}
	}
	if err := CheckRuns(ChildrenOf(calls)); err != nil {
		return fmt.Errorf("call: %w", err)
	}
	return nil
}

func (c *Call) check() error {
	if err := CheckStepName(c.Name); err != nil {
		return err
	}
	if len(c.Children) == 0 || len(c.Children) > MaxSources {
		return fmt.Errorf("%d children: want 1 to %d", len(c.Children), MaxSources)
	}
	for i := range c.Children {
		if c.Children[i].Key.Text != "" || len(c.Children[i].DependsOn) > 0 {
			return errors.New("a child has neither a unique key nor conditions: its name makes it once")
		}
	}
	return nil
}

// ChildrenOf returns the children of all calls.
func ChildrenOf(calls []Call) []NewRun {
	if len(calls) == 1 {
		return calls[0].Children
	}
	var runs []NewRun
	for i := range calls {
		runs = append(runs, calls[i].Children...)
	}
	return runs
}
