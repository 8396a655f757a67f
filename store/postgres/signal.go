package postgres

import (
	"cmp"
	"encoding/hex"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/postgres/internal/conn"
)

// A payload begins with the name of the process that sends it. On its own the name means
// that runs may be due. A space and marks of 33 characters may follow: a letter for the kind
// of signal and the run in hexadecimal. A program that does not know the form of a payload
// reads it as "runs may be due".
const (
	markLength   = 33
	marksPerCall = 200 // a payload has to be shorter than 8000 bytes
)

var letters = map[store.SignalKind]byte{ //nolint:gochecknoglobals // a constant table
	store.CancelsRequested: 'c', store.RunAwaited: 'w', store.RunEnded: 'e',
}

// payloads encodes signals in as few payloads as possible.
func payloads(self string, signals []store.Signal) []string {
	var texts []string
	var marks strings.Builder
	for i, signal := range signals {
		if letter, known := letters[signal.Kind]; known {
			marks.WriteByte(letter)
			marks.WriteString(hex.EncodeToString(signal.Run[:]))
		} else if signal.Kind == store.RunsDue {
			texts = append(texts, self)
		}
		if marks.Len() == marksPerCall*markLength || i == len(signals)-1 && marks.Len() > 0 {
			texts = append(texts, self+" "+marks.String())
			marks.Reset()
		}
	}
	return texts
}

// signals decodes a payload; it returns none if self has sent it.
func signals(self, payload string) []store.Signal {
	sender, marks, marked := strings.Cut(payload, " ")
	if sender == self {
		return nil
	}
	if dues := readDue(marks); len(dues) > 0 {
		return dues
	}
	due := []store.Signal{{Kind: store.RunsDue}}
	if !marked || marks == "" || len(marks)%markLength != 0 {
		return due
	}
	var read []store.Signal
	for ; marks != ""; marks = marks[markLength:] {
		var signal store.Signal
		for kind, letter := range letters {
			if letter == marks[0] {
				signal.Kind = kind
			}
		}
		if _, err := hex.Decode(signal.Run[:], []byte(marks[1:markLength])); err != nil || signal.Kind == 0 {
			return due
		}
		read = append(read, signal)
	}
	return read
}

// dueBox collects wake-ups that name their lanes until they are sent. It holds one for the
// runs of a lane that are due, and one for each slot in which more of its runs become due.
type dueBox struct {
	mu      sync.Mutex
	lanes   map[dueKey]boxed
	passed  []boxed // those with a draw of their own, and those passed on by another worker
	overrun bool    // there were more than mostDue
}

type dueKey struct {
	lane store.LaneID
	slot time.Duration // when its runs become due, in units of laterSlot; zero: they are due
}

// boxed is a wake-up in a box.
type boxed struct {
	store.Due

	at time.Duration // monotonic clock when its runs are due; zero: they are
}

// laterSlot is the time within which runs become due that share one wake-up, at the last instant.
const laterSlot = 10 * time.Millisecond

// roughly is the slot of wake-ups for instants that may be too early. The earliest counts.
const roughly = -1

func box(due store.Due, now time.Duration) (b boxed, key dueKey) {
	b, key = boxed{Due: due}, dueKey{lane: due.Lane}
	if due.In > 0 {
		b.at = now + due.In
		if key.slot = b.at/laterSlot + 1; due.Runs == 0 {
			key.slot = roughly
		}
	}
	return b, key
}

// unboxed returns the wake-up with the time that is left until its runs are due.
func (b *boxed) unboxed(now time.Duration) store.Due {
	due := b.Due
	if due.In > 0 {
		due.In = max(b.at-now, time.Millisecond)
	}
	return due
}

// mostDue bounds what a dueBox holds. Beyond it one wake-up that names no lane means all of them.
const mostDue = 2000

// add puts wake-ups into the box. It reports whether the sender has to be woken for them: most
// only add to the number of runs of a wake-up that the box holds already.
func (b *dueBox) add(all ...store.Due) (sooner bool) {
	now := lease.Running()
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.lanes == nil {
		b.lanes = map[dueKey]boxed{}
	}
	for i := range all {
		due, key := box(all[i], now)
		before, there := b.lanes[key]
		switch {
		case len(b.lanes)+len(b.passed) >= mostDue:
			sooner, b.overrun = sooner || !b.overrun, true
		case due.Draw != 0:
			sooner = true
			b.pass(due)
		case there:
			due.Due = due.And(before.Due)
			due.Runs += before.Runs
			if key.slot == roughly {
				sooner, due.at = sooner || due.at < before.at, min(due.at, before.at)
			} else {
				due.at = max(due.at, before.at)
			}
			sooner = sooner || before.Runs <= watchMost && due.Runs > watchMost || !before.Covers(due.Due)
			b.lanes[key] = due
		default:
			sooner, b.lanes[key] = true, due
		}
	}
	return sooner
}

// pass adds a wake-up for workers other than those that a new draw would choose. Of several
// for the same lane it keeps one. b.mu is held.
func (b *dueBox) pass(due boxed) {
	same := func(other boxed) bool { return other.Lane == due.Lane && other.Passed == 0 && other.In == 0 }
	if i := slices.IndexFunc(b.passed, same); i >= 0 && same(due) {
		due.Due = due.And(b.passed[i].Due)
		due.Runs = max(due.Runs, b.passed[i].Runs)
		b.passed[i] = due
		return
	}
	b.passed = append(b.passed, due)
}

// take removes and returns the wake-ups that do not stay; with nil, all of them.
func (b *dueBox) take(stays func(store.Due) bool) (all []store.Due, overrun bool) {
	now := lease.Running()
	b.mu.Lock()
	defer b.mu.Unlock()
	for key, one := range b.lanes {
		if due := one.unboxed(now); stays == nil || !stays(due) {
			all = append(all, due)
			delete(b.lanes, key)
		}
	}
	for i := range b.passed {
		all = append(all, b.passed[i].unboxed(now))
	}
	overrun = b.overrun
	b.passed, b.overrun = nil, false
	return all, overrun
}

// any reports whether the box holds something.
func (b *dueBox) any() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.lanes)+len(b.passed) > 0 || b.overrun
}

// all returns what the box holds without removing it.
func (b *dueBox) all() (all []store.Due, overrun bool) {
	now := lease.Running()
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, one := range b.lanes {
		all = append(all, one.unboxed(now))
	}
	for i := range b.passed {
		all = append(all, b.passed[i].unboxed(now))
	}
	return all, b.overrun
}

func newDraw() uint32 { return max(rand.Uint32(), 1) }

// duesOf returns the wake-ups for runs that may be due before workers poll. Nothing but hints
// depends on it, so the clock of this machine is good enough, with a wide margin.
func duesOf(list []store.NewRun, set laneSet) []store.Due {
	var all []store.Due
	last, runs := &store.NewRun{}, 1
	for i := range list {
		run := &list[i]
		if len(all) > 0 && sameLane(last, run) && run.At.Equal(last.At) && run.Delay() == last.Delay() {
			all[len(all)-1].Runs += runs
			all[len(all)-1] = all[len(all)-1].And(store.Due{Limited: len(run.Limits) > 0})
			continue
		}
		in := run.Delay()
		if !run.At.IsZero() {
			until := time.Until(run.At)
			if until >= time.Hour {
				continue
			}
			in = max(until-time.Second, 0)
		}
		if runs = 1; in > 0 && !run.At.IsZero() {
			runs = 0 // roughly: by this machine's clock
		}
		if in > store.WakeAhead && run.At.IsZero() {
			continue
		}
		last = run
		if all = append(all, store.Due{Lane: set[laneOf(run)], Names: namesOf(run.Queue, run.Job), Runs: runs,
			Limited: len(run.Limits) > 0, In: max(in, 0)}); len(all) == mostDue {
			return append(all, store.Due{Lane: all[0].Lane}) // the box overruns
		}
	}
	return all
}

const (
	dueLetter    = 'd'
	duesPerCall  = 120 // a payload has to be shorter than 8000 bytes
	fieldsOfDue  = 4   // and one more, kindMixed or kindLimited, where some of the runs have limits
	kindMixed    = 1   // some runs have none; of a program that does not tell them apart: perhaps
	kindLimited  = 2
	fieldsOfHead = 4
	numeralsBase = 36
)

// duePayloads encodes wake-ups in as few payloads as possible. Those in one payload share its
// head:
//
//	SELF d<draw>,<passed>,<every>,<for>;<lane>,<names>,<runs>,<in>[,<kind>];…
//
// every, for and in are milliseconds.
//
// A program that does not know the form reads it as "runs may be due".
func duePayloads(self string, all []store.Due) []string {
	all = slices.Clone(all)
	slices.SortStableFunc(all, func(a, b store.Due) int {
		return cmp.Or(cmp.Compare(a.Draw, b.Draw), cmp.Compare(a.Passed, b.Passed), cmp.Compare(a.For, b.For))
	})
	alike := func(a, b *store.Due) bool {
		return a.Draw == b.Draw && a.Passed == b.Passed && a.Every == b.Every && a.For == b.For
	}
	var texts []string
	for start := 0; start < len(all); {
		end := start
		for end < len(all) && end-start < duesPerCall && alike(&all[start], &all[end]) {
			end++
		}
		texts = append(texts, duePayload(self, all[start:end]))
		start = end
	}
	return texts
}

func duePayload(self string, all []store.Due) string {
	text := append([]byte(self), ' ', dueLetter)
	number := func(before byte, n uint64) {
		if before != 0 {
			text = append(text, before)
		}
		text = strconv.AppendUint(text, n, numeralsBase)
	}
	number(0, uint64(all[0].Draw))
	number(',', uint64(max(all[0].Passed, 0)))
	for _, d := range [...]time.Duration{all[0].Every, all[0].For} {
		number(',', uint64(max(d.Milliseconds(), 0)))
	}
	for _, due := range all {
		number(';', uint64(max(due.Lane, 0)))
		number(',', due.Names)
		number(',', uint64(max(due.Runs, 0)))
		number(',', uint64(max(due.In.Milliseconds(), 0)))
		switch {
		case due.Mixed:
			number(',', kindMixed)
		case due.Limited:
			number(',', kindLimited)
		}
	}
	if (len(text)-len(self)-1)%markLength == 0 {
		text = append(text, ';') // else it could be taken for marks
	}
	return string(text)
}

// readDue decodes what follows the sender in a payload; nil: it has another form.
func readDue(text string) (signals []store.Signal) {
	if text == "" || text[0] != dueLetter {
		return nil
	}
	parts := strings.Split(strings.TrimSuffix(text[1:], ";"), ";")
	head, ok := numerals(parts[0])
	if !ok || len(head) != fieldsOfHead {
		return nil
	}
	for _, part := range parts[1:] {
		fields, ok := numerals(part)
		if !ok || len(fields) != fieldsOfDue && len(fields) != fieldsOfDue+1 {
			return nil
		}
		signals = append(signals, store.Signal{Kind: store.RunsDue, Due: store.Due{
			Lane: store.LaneID(fields[0]), Names: fields[1], Runs: int(conn.Small(int(min(fields[2], 1<<31)))), //nolint:gosec // bounded
			In: fromMillis(fields[3]), Draw: uint32(head[0]), Passed: int(min(head[1], 1<<20)), //nolint:gosec // likewise
			Every: fromMillis(head[2]), For: fromMillis(head[3]),
			Limited: len(fields) > fieldsOfDue, Mixed: len(fields) > fieldsOfDue && fields[fieldsOfDue] != kindLimited,
		}})
	}
	return signals
}

func fromMillis(n uint64) time.Duration { return time.Duration(min(n, 1<<32)) * time.Millisecond }

func numerals(text string) (numbers []uint64, ok bool) {
	for field := range strings.SplitSeq(text, ",") {
		n, err := strconv.ParseUint(field, numeralsBase, 64)
		if err != nil {
			return nil, false
		}
		numbers = append(numbers, n)
	}
	return numbers, true
}
