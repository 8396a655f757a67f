package lock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/durable-worker/durable-worker/lease"
)

// Waits lets the processes that share a store of locks know of each other's waiting: operators
// see who waits, and waiters are notified of releases. These are hints. They may arrive late,
// needlessly, or not at all, so every waiter also polls the store.
type Waits interface {
	// NoteWait writes down that a process waits for a name, in place of what it
	// noted before; the note lapses after d. With no calls it takes the note back.
	NoteWait(ctx context.Context, wait Wait, d time.Duration) error
	// ListWaits lists the notes that stand, by name and age, at most limit of
	// them, of names that begin with prefix.
	ListWaits(ctx context.Context, prefix string, limit int) ([]Wait, error)
	// HearFreed calls hear, never concurrently, with names that the waiter has
	// noted and whose slots were released, also by force: of the processes that
	// wait for a name the store notifies one of each release, any of them. It
	// calls hear with "", which means every name, when it begins to listen and
	// when it may have missed something. It blocks until ctx ends (and returns
	// nil) or the connection breaks.
	HearFreed(ctx context.Context, waiter lease.ClaimID, hear func(name string)) error
}

// Wait says that a process waits for a lock.
type Wait struct {
	Name   string        `json:"name"`
	Waiter lease.ClaimID `json:"-"` // of the process, random
	Owner  string        `json:"owner"`
	Calls  int           `json:"calls"` // of the process, that wait
	Since  time.Time     `json:"since"` // of the note, on the store's clock; ignored by NoteWait
}

// Validate reports every violation of the bounds of a note.
func (w Wait) Validate() error {
	faults := []error{checkText("name", w.Name, 1), checkText("owner", w.Owner, 0)}
	if w.Waiter == (lease.ClaimID{}) || w.Calls < 0 {
		faults = append(faults, fmt.Errorf("%w: lock %q: a wait of %d calls by %s", ErrInvalid, w.Name, w.Calls, w.Waiter.Short()))
	}
	return errors.Join(faults...)
}

// A wait is noted when it has lasted for some pauses: most are over before.
const (
	noteFrom  = 80 * time.Millisecond // the pause after which a wait is noted
	noteLife  = 10 * time.Second
	noteAgain = noteLife / 3
	hearAgain = time.Second // after the connection broke
)

// hearing is one listener for all waiting calls of this process.
type hearing struct{ cancel context.CancelFunc }

// note announces to other processes that calls of this one wait for a name, and
// listens for releases until the last of them has left.
func (l *Locker) note(ctx context.Context, name string) {
	if l.config.Waits == nil {
		return
	}
	l.mu.Lock()
	now := l.config.Elapsed()
	noted, known := l.notes[name]
	if known && now-noted < noteAgain {
		l.mu.Unlock()
		return
	}
	l.notes[name] = now
	calls := len(l.lines[name])
	if l.hearing == nil {
		ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
		l.hearing = &hearing{cancel}
		l.calls.Go(func() { l.hear(ctx) })
	}
	l.mu.Unlock()
	nothing := func(struct{}) {}
	_, _ = apart(ctx, l, l.asking, l.config.CallTimeout, func(ctx context.Context) (done struct{}) {
		l.write(ctx, name, calls)
		return done
	}, nothing)
}

// unnote withdraws a note when no call waits for the name any more. The caller, who may just
// have been granted the lock, does not wait for that. A note that is written at that moment
// by another call may be lost, and is written again a little later.
func (l *Locker) unnote(ctx context.Context, name string) {
	l.mu.Lock()
	_, noted := l.notes[name]
	if !noted || len(l.lines[name]) > 0 {
		l.mu.Unlock()
		return
	}
	delete(l.notes, name)
	if len(l.notes) == 0 {
		l.hearing.cancel()
		l.hearing = nil
	}
	l.mu.Unlock()
	if l.Degraded() > 0 {
		return // it lapses
	}
	l.calls.Go(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), l.config.CallTimeout)
		defer cancel()
		l.write(ctx, name, 0)
	})
}

func (l *Locker) write(ctx context.Context, name string, calls int) {
	err := l.config.Waits.NoteWait(ctx, Wait{Name: name, Waiter: l.waiter, Owner: l.config.Owner, Calls: calls}, noteLife)
	if err != nil {
		l.config.Logger.Debug("announcing a waiter failed, releases are found by polling", "event", "lock.wait_not_announced", "lock", name, "error", err)
	}
}

// hear wakes the calls that other processes' releases may serve, until ctx ends.
func (l *Locker) hear(ctx context.Context) {
	for {
		err := l.config.Waits.HearFreed(ctx, l.waiter, l.freed)
		if ctx.Err() != nil {
			return
		}
		l.config.Logger.Debug("lock notifications unavailable, polling instead", "event", "lock.listen_failed", "error", err)
		select {
		case <-time.After(hearAgain):
		case <-ctx.Done():
			return
		}
	}
}

// freed lets the first in line of one name, or of all, call the store.
func (l *Locker) freed(name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for each, line := range l.lines {
		if (name == "" || name == each) && len(line) > 0 {
			line[0].heard, line[0].rest = true, false
			line[0].call()
		}
	}
}
