package durable

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/durable-worker/durable-worker/store"
)

// SetAside is something that the store refused to change. It is retried later,
// while everything else continues.
type SetAside struct {
	Doing string        // what was tried: reclaim, sweep, materialize, declare
	Kind  string        // what it is: run, lease, schedule, job
	Name  string        // its id, or its name
	Tries int           // how often it has failed, as far as this worker knows
	Since time.Duration // since it first failed
	Error string        // the last failure
}

// asideMost bounds what a worker lists, asideKept how long beyond the next try it
// lists something that was not reported again.
const (
	asideMost = 100
	asideKept = time.Minute
)

// asides are what the store's loops have skipped.
type asides struct {
	mu   sync.Mutex
	kept map[string]*aside
}

type aside struct {
	SetAside

	began, until time.Duration // monotonic time
}

// passedOver logs what a loop has skipped, each time it does.
func (w *Worker) passedOver(doing string, passed []store.SetAside) {
	now := w.config.Elapsed()
	for i := range passed {
		one := &passed[i]
		tries := w.asides.add(doing, one, now)
		w.config.Logger.Error("set aside: the store refuses to change it", "event", "store.set_aside", "doing", doing, "kind", one.Kind, "name", one.Name,
			"tries", tries, "again_in", one.Again.String(), "error", one.Err)
	}
}

// add takes note of one thing and returns how often it has failed.
func (a *asides) add(doing string, one *store.SetAside, now time.Duration) (tries int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.expire(now)
	key := doing + " " + one.Kind + " " + one.Name
	known := a.kept[key]
	switch {
	case known == nil && len(a.kept) >= asideMost:
		return 1
	case known == nil:
		if a.kept == nil {
			a.kept = map[string]*aside{}
		}
		known = &aside{SetAside: SetAside{Doing: doing, Kind: one.Kind, Name: one.Name}, began: now}
		a.kept[key] = known
	}
	known.Tries++
	known.Error, known.until = fmt.Sprint(one.Err), now+one.Again+asideKept
	return known.Tries
}

// accepted drops everything that is listed for this activity, because the store has accepted it.
func (a *asides) accepted(doing string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for key, one := range a.kept {
		if one.Doing == doing {
			delete(a.kept, key)
		}
	}
}

func (a *asides) expire(now time.Duration) {
	for key, one := range a.kept {
		if now > one.until {
			delete(a.kept, key)
		}
	}
}

// list returns what is set aside, the oldest first.
func (a *asides) list(now time.Duration) []SetAside {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.expire(now)
	var all []SetAside
	for _, one := range a.kept {
		listed := one.SetAside
		listed.Since = now - one.began
		all = append(all, listed)
	}
	slices.SortFunc(all, func(a, b SetAside) int {
		if a.Since != b.Since {
			return int(b.Since - a.Since)
		}
		return strings.Compare(a.Doing+a.Kind+a.Name, b.Doing+b.Kind+b.Name)
	})
	return all
}
