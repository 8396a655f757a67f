package stepping

import (
	"sync"

	"github.com/durable-worker/durable-worker/store"
)

// Releaser knows when a worker has to release runs, and at which it has to look.
type Releaser struct {
	signal chan struct{}

	mu    sync.Mutex
	looks []store.Look // at runs that have just begun to wait
}

// MostTaken is how many looks, and how many notices, one release takes. mostLooks is how many looks
// are kept: those that are dropped have a notice, which a later release takes.
const (
	MostTaken = 500
	mostLooks = 10_000
)

// NewReleaser returns one that has nothing to release.
func NewReleaser() *Releaser { return &Releaser{signal: make(chan struct{}, 1)} }

// Noticed is signalled when there is something to release.
func (r *Releaser) Noticed() <-chan struct{} { return r.signal }

// Notice says that notices are left.
func (r *Releaser) Notice() {
	select {
	case r.signal <- struct{}{}:
	default:
	}
}

// Look has it found out whether the inputs are there that runs have begun to wait for.
func (r *Releaser) Look(looks []store.Look) {
	if len(looks) == 0 {
		return
	}
	r.mu.Lock()
	if len(r.looks)+len(looks) <= mostLooks {
		r.looks = append(r.looks, looks...)
	}
	r.mu.Unlock()
	r.Notice()
}

// Take returns the next looks.
func (r *Releaser) Take() []store.Look {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := min(len(r.looks), MostTaken)
	looks := r.looks[:n:n]
	if r.looks = r.looks[n:]; len(r.looks) == 0 {
		r.looks = nil
	}
	return looks
}
