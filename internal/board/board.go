// Package board passes signals between the goroutines of one process. Stores
// put on it what their listeners are to hear.
package board

import (
	"sync"

	"github.com/durable-worker/durable-worker/store"
)

// most bounds the signals that wait in a box.
const most = 10_000

// Box keeps signals until they are taken, equal ones once. Make it with NewBox.
type Box struct {
	given chan struct{}

	mu      sync.Mutex // guards the fields below
	waiting []store.Signal
	known   map[store.Signal]struct{} // what is in waiting
	ended   bool
}

// NewBox returns an empty box.
func NewBox() *Box {
	return &Box{given: make(chan struct{}, 1), known: map[store.Signal]struct{}{}}
}

// Put adds signals without waiting for anybody. When too many wait already,
// those that come are kept as the zero run of their kind.
func (b *Box) Put(signals ...store.Signal) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ended {
		return
	}
	for _, signal := range signals {
		if len(b.waiting) >= most {
			signal.Run = store.RunID{}
		}
		if _, known := b.known[signal]; !known {
			b.known[signal] = struct{}{}
			b.waiting = append(b.waiting, signal)
		}
	}
	if len(b.waiting) > 0 {
		select {
		case b.given <- struct{}{}:
		default:
		}
	}
}

// Given gets a value after signals were put, and is closed at the end.
func (b *Box) Given() <-chan struct{} { return b.given }

// Take empties the box, in the order in which the signals came.
func (b *Box) Take() []store.Signal {
	b.mu.Lock()
	defer b.mu.Unlock()
	taken := b.waiting
	b.waiting = nil
	clear(b.known)
	return taken
}

func (b *Box) end() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.ended {
		b.ended = true
		close(b.given)
	}
}

// Board gives every signal to every box that has joined. The zero value is
// usable.
type Board struct {
	mu    sync.Mutex // guards the fields below
	boxes map[*Box]struct{}
	ended bool
}

// Join returns a new box, which gets what is given from now on.
func (b *Board) Join() *Box {
	box := NewBox()
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ended {
		box.end()
		return box
	}
	if b.boxes == nil {
		b.boxes = map[*Box]struct{}{}
	}
	b.boxes[box] = struct{}{}
	return box
}

// Part takes a box from the board.
func (b *Board) Part(box *Box) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.boxes, box)
}

// Give puts signals into every box.
func (b *Board) Give(signals ...store.Signal) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for box := range b.boxes {
		box.Put(signals...)
	}
}

// End ends every box, now and later.
func (b *Board) End() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ended = true
	for box := range b.boxes {
		box.end()
	}
	b.boxes = nil
}
