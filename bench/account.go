package main

import (
	"context"
	"runtime/pprof"
	"time"
)

// account is what is spent from an instant on.
type account struct {
	b      *bench
	w      *watch
	label  string
	before spent
	own    time.Duration
}

func (b *bench) account(ctx context.Context, w *watch, label string) (*account, error) {
	a := &account{b: b, w: w, label: label}
	err := w.forget(ctx)
	if err == nil {
		err = startProfile(b.profile(label))
	}
	if err == nil {
		a.before, err = w.fast(ctx)
	}
	a.own = ownCPU()
	return a, err
}

// close tells what each of n schedules has cost.
func (a *account) close(ctx context.Context, n int, found sample) error {
	own := ownCPU() - a.own
	pprof.StopCPUProfile()
	after, err := a.w.fast(ctx)
	if err != nil {
		return err
	}
	each := func(d time.Duration) float64 { return d.Seconds() * 1e6 / float64(n) }
	found["server"], found["go"] = each(after.cpu-a.before.cpu), each(own)
	found["cpu"], found["wal"] = found["server"]+found["go"], (after.wal-a.before.wal)/float64(n)
	a.b.noted(ctx, a.w, a.label)
	return nil
}
