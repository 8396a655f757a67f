package memory

import (
	"cmp"
	"slices"
	"time"

	"github.com/durable-worker/durable-worker/internal/admit"
	"github.com/durable-worker/durable-worker/store"
)

// turns says of which gates there may be room, in lines: each is read by those
// who serve it.
type turns map[store.LineID]*turnLine

// turnLine is a line of turns. A row whose instant is not among those of its gate is
// that of a turn which another one has answered for.
type turnLine struct {
	rows []turn
	dues map[admit.GateID][]time.Time // rising
}

// turn says that a gate may have room at an instant.
type turn struct {
	dueAt time.Time
	gate  admit.GateID
}

func orderTurns(a, b turn) int {
	if c := a.dueAt.Compare(b.dueAt); c != 0 {
		return c
	}
	return cmp.Compare(a.gate, b.gate)
}

// add adds a turn, unless the gate has one that is due, or one for the same
// instant. A waiter that is due later needs one of its own: an earlier one is
// taken before.
func (t turns) add(line store.LineID, gate admit.GateID, due, now time.Time) {
	if dues := t.dues(line, gate); len(dues) > 0 && !dues[0].After(now) && !due.After(now) {
		return
	}
	t.insert(line, gate, due)
}

// addUnless adds a turn, unless the gate has one that is due no later. It reports
// whether it did.
func (t turns) addUnless(line store.LineID, gate admit.GateID, due time.Time) bool {
	if dues := t.dues(line, gate); len(dues) > 0 && !dues[0].After(due) {
		return false
	}
	t.insert(line, gate, due)
	return true
}

func (t turns) dues(line store.LineID, gate admit.GateID) []time.Time {
	if l := t[line]; l != nil {
		return l.dues[gate]
	}
	return nil
}

func (t turns) insert(line store.LineID, gate admit.GateID, due time.Time) {
	l := t[line]
	if l == nil {
		l = &turnLine{dues: make(map[admit.GateID][]time.Time)}
		t[line] = l
	}
	one := turn{due, gate}
	if i, found := slices.BinarySearchFunc(l.rows, one, orderTurns); !found {
		l.rows = slices.Insert(l.rows, i, one)
	}
	dues := l.dues[gate]
	if at, found := slices.BinarySearchFunc(dues, due, time.Time.Compare); !found {
		l.dues[gate] = slices.Insert(dues, at, due)
	}
}

// take takes the first turns of a line that are due. One answers for all of its gate
// that are due.
func (t turns) take(line store.LineID, most int, now time.Time) (taken []turn) {
	l := t[line]
	for l != nil && len(taken) < most {
		first, waiting := l.first()
		if !waiting || first.dueAt.After(now) {
			break
		}
		taken = append(taken, first)
		l.answer(first.gate, now)
	}
	return taken
}

// answer removes the turns of a gate that are due. Their rows are removed by first.
func (l *turnLine) answer(gate admit.GateID, now time.Time) {
	dues := l.dues[gate]
	later := slices.IndexFunc(dues, func(due time.Time) bool { return due.After(now) })
	if later < 0 {
		delete(l.dues, gate)
		return
	}
	l.dues[gate] = dues[later:]
}

// first is the first turn of the line. Rows before it whose turns are gone are removed.
func (l *turnLine) first() (turn, bool) {
	for len(l.rows) > 0 {
		row := l.rows[0]
		if dues := l.dues[row.gate]; len(dues) > 0 && dues[0].Equal(row.dueAt) {
			return row, true
		}
		l.rows = l.rows[1:]
	}
	return turn{}, false
}

// next is when the first turn of a line is due.
func (t turns) next(line store.LineID) (time.Time, bool) {
	l := t[line]
	if l == nil {
		return time.Time{}, false
	}
	first, waiting := l.first()
	return first.dueAt, waiting
}

// soonest is when the first turn of a gate is due in any line.
func (t turns) soonest(gate admit.GateID) (first time.Time) {
	for _, l := range t {
		if dues := l.dues[gate]; len(dues) > 0 && (first.IsZero() || dues[0].Before(first)) {
			first = dues[0]
		}
	}
	return first
}
