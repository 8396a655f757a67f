package main

import (
	"context"
	"fmt"
	"os/exec"
	"strconv"
	"time"
)

// foreign is a program of another framework, which executes workflows of stepsEach steps and
// answers as a child does. It is a module of its own, so that what it needs is kept apart.
type foreign struct {
	name      string
	on        engine
	workflows int
	handlers  int
	stored    string // counts the steps that it has stored; empty: it counts them itself
}

func (f foreign) measure(ctx context.Context, b *bench, _ string) (sample, error) {
	w, err := b.emptyPlace(ctx, f.on)
	if err != nil {
		return nil, err
	}
	defer w.close()
	program, err := b.build(ctx, f.name)
	if err != nil {
		return nil, err
	}
	c, err := launch(exec.Command(program, "-target", w.target, "-workflows", strconv.Itoa(f.workflows),
		"-steps", strconv.Itoa(stepsEach), "-handlers", strconv.Itoa(f.handlers)))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", f.name, err)
	}
	defer c.end()
	before, err := w.fast(ctx)
	if err != nil {
		return nil, err
	}
	began := time.Now()
	if err := c.begin(); err != nil {
		return nil, err
	}
	u, err := c.report()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", f.name, err)
	}
	took := time.Since(began)
	after, err := w.fast(ctx)
	if err != nil {
		return nil, err
	}
	steps := f.workflows * stepsEach
	if f.stored != "" {
		if found, err := w.count(ctx, f.stored); err != nil || found != steps {
			return nil, fmt.Errorf("%s: %d of %d steps are stored: %w", f.name, found, steps, err)
		}
	}
	return drained(steps, took, time.Duration(u.CPU), before, after).without("dead", "hot", "statements"), nil
}
