package storetest

import (
	"context"
	"testing"
	"time"

	"github.com/durable-worker/durable-worker/store"
)

func listenTests() map[string]func(*testing.T, *fixture) {
	return map[string]func(*testing.T, *fixture){
		"a listener is woken after an enqueue":            listenEnqueue,
		"a listener is woken after a hand-back":           listenHandBack,
		"every listener is woken":                         listenAll,
		"every listener receives what is published":       listenAnnounced,
		"a listener begins with runs that may have ended": listenBegins,
		"listening ends when its context is over":         listenEnds,
	}
}

// woken waits until n listeners were notified that runs are due.
func (f *fixture) woken(n int, do func()) {
	f.t.Helper()
	f.heard(n, store.Signal{Kind: store.RunsDue}, do)
}

// heard listens n times, does something repeatedly until every listener has
// received a signal, and waits until all have ended. A hint may be missed while
// Listen begins, which is why once is not enough.
func (f *fixture) heard(n int, want store.Signal, do func()) {
	f.t.Helper()
	ctx, cancel := context.WithCancel(f.ctx)
	ended := make(chan error, n)
	wakes := make(chan int, 10_000)
	for i := range n {
		go func() {
			ended <- f.store.Listen(ctx, func(signal store.Signal) {
				if signal != want {
					return
				}
				select {
				case wakes <- i:
				default:
				}
			})
		}()
	}
	again := time.NewTicker(100 * time.Millisecond)
	defer again.Stop()
	deadline := time.After(patience)
	for woken := map[int]bool{}; len(woken) < n; {
		select {
		case i := <-wakes:
			woken[i] = true
		case <-again.C:
			do()
		case err := <-ended:
			f.t.Fatalf("Listen ended by itself: %v", err)
		case <-deadline:
			f.t.Fatalf("%d of %d listeners heard %+v", len(woken), n, want)
		}
	}
	cancel()
	for range n {
		select {
		case err := <-ended:
			if err != nil {
				f.t.Errorf("Listen: %v, want nil after its context ended", err)
			}
		case <-deadline:
			f.t.Fatal("Listen did not end with its context")
		}
	}
}

func listenEnqueue(_ *testing.T, f *fixture) {
	f.woken(1, func() { f.enqueue(newRun()) })
}

func listenHandBack(_ *testing.T, f *fixture) {
	f.enqueue(newRun())
	worker := newWorker("w1")
	claim, claimed := f.claimOne(worker)
	f.woken(1, func() {
		f.settle(one(claim, worker, claimed.ID, store.Outcome{Kind: store.HandedBack}))
		claim, claimed = f.claimOne(worker)
	})
}

func listenAll(_ *testing.T, f *fixture) {
	f.woken(5, func() { f.enqueue(newRun()) })
}

func listenEnds(_ *testing.T, f *fixture) {
	ctx, cancel := context.WithCancel(f.ctx)
	cancel()
	f.together(func(context.Context) error {
		return f.store.Listen(ctx, func(store.Signal) {})
	})
}

func listenAnnounced(t *testing.T, f *fixture) {
	for _, kind := range []store.SignalKind{store.RunsDue, store.CancelsRequested, store.RunAwaited, store.RunEnded} {
		signal := store.Signal{Kind: kind}
		if kind != store.RunsDue {
			signal.Run = store.NewRunID()
		}
		f.heard(2, signal, func() {
			if err := f.store.Publish(f.ctx, signal); err != nil {
				t.Errorf("Announce: %v", err)
			}
		})
	}
}

func listenBegins(_ *testing.T, f *fixture) {
	f.heard(2, store.Signal{Kind: store.RunEnded}, func() {})
}
