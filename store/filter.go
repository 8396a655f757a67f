package store

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/durable-worker/durable-worker/internal/storable"
)

// Filter narrows a list of runs. The zero value lists everything.
type Filter struct {
	States     []State
	Jobs       []string
	Queues     []string
	IDs        []RunID   // only these, at most 200; nil: any. Empty and not nil is refused: a choice of none is not a choice of all
	Tag        string    // only runs with this tag; empty: any
	Key        string    // only runs enqueued with this key; empty: any
	Schedule   string    // only runs of the schedule of this name; empty: any
	Parent     RunID     // only children of this run; the zero id: any. Not together with IDs
	WaitingOn  RunID     // only runs that wait for this one, on which they depend; the zero id: any. Not together with IDs or Parent
	Batch      BatchID   // only members of this batch; the zero id: any. Not together with IDs, Parent or WaitingOn
	Worker     string    // only runs that the worker of this name has, or had last; empty: any
	Error      string    // only runs whose Record.Error contains this text; empty: any
	Args       string    // only runs whose args, as they are stored, contain this text; empty: any
	Metadata   Metadata  // only runs whose metadata has each of these values; nil: any
	EndedSince time.Time // only runs that ended at or after it; the zero time: any
	Since      time.Time // only runs created at or after it, by the time in their ids, in milliseconds; the zero time: any
	Until      time.Time // only runs created before it, likewise
	Before     RunID     // cursor: only runs with a smaller id; the zero id is none
	Limit      int       // 1 to 200; zero means 50
}

// The number of runs on a page.
const (
	defaultPage = 50
	LargestPage = 200
)

// most is how many entries a list has: what was asked for, or the default for zero.
func most(asked, usual, largest int) (int, error) {
	switch {
	case asked == 0:
		return usual, nil
	case asked < 1 || asked > largest:
		return 0, fmt.Errorf("%w: limit %d: want 1 to %d", ErrInvalid, asked, largest)
	default:
		return asked, nil
	}
}

// checkSince refuses a bound that no store can compare with.
func checkSince(since time.Time) error {
	if !inYears(since) {
		return fmt.Errorf("%w: since %v: want a year from 1970 to 9999", ErrInvalid, since)
	}
	return nil
}

// Named reports whether an index finds the runs, by their ids, a key, a schedule, or a link to another
// run or a batch: then they are counted one by one.
func (f *Filter) Named() bool { return len(f.IDs) > 0 || f.Key != "" || f.Schedule != "" || f.Linked() }

// Linked reports whether the filter asks for runs that are linked to another one, or to a batch.
func (f *Filter) Linked() bool { return f.links() > 0 }

// links is to how many runs and batches the filter asks for links.
func (f *Filter) links() (n int) {
	for _, id := range []RunID{f.Parent, f.WaitingOn, f.Batch} {
		if id != (RunID{}) {
			n++
		}
	}
	return n
}

// Range is what a store needs to know of a filter: the ids listed lie from the
// first to below the second one, and at most limit of them are wanted. It
// refuses with ErrInvalid what makes no sense.
func (f *Filter) Range() (from, below RunID, limit int, err error) {
	if limit, err = most(f.Limit, defaultPage, LargestPage); err != nil {
		return from, below, 0, err
	}
	if len(f.IDs) > LargestPage {
		return from, below, 0, fmt.Errorf("%w: %d ids: want at most %d", ErrInvalid, len(f.IDs), LargestPage)
	}
	if err := f.checkWords(); err != nil {
		return from, below, 0, err
	}
	for _, bound := range []struct {
		name string
		at   time.Time
	}{{"since", f.Since}, {"until", f.Until}, {"ended since", f.EndedSince}} {
		if !inYears(bound.at) {
			return from, below, 0, fmt.Errorf("%w: %s %v: want a year from 1970 to 9999", ErrInvalid, bound.name, bound.at)
		}
	}
	for i := range below {
		below[i] = 0xff
	}
	if f.Before != (RunID{}) {
		below = f.Before
	}
	if !f.Until.IsZero() {
		if until := firstID(f.Until); string(until[:]) < string(below[:]) {
			below = until
		}
	}
	if !f.Since.IsZero() {
		from = firstID(f.Since)
	}
	return from, below, limit, nil
}

// Wanted are the states that the filter asks for.
func (f *Filter) Wanted() []State {
	if len(f.States) == 0 {
		return States()
	}
	return f.States
}

// Narrow reports whether the filter asks for more than states.
func (f *Filter) Narrow() bool {
	return len(f.Jobs)+len(f.Queues) > 0 || f.IDs != nil || f.Tag != "" || !f.Since.IsZero() || !f.Until.IsZero() || f.Linked() || f.Selects()
}

// Selects reports whether the filter asks for a key, a schedule, a worker, an
// error, args, metadata or an end.
func (f *Filter) Selects() bool {
	return f.Key+f.Schedule+f.Worker+f.Error+f.Args != "" || len(f.Metadata) > 0 || !f.EndedSince.IsZero()
}

// ArgsSpellings are the spellings in which JSON may have the text that is searched for in
// args: as it is, and with the escapes of encoding/json. Without such a text there are
// none.
func (f *Filter) ArgsSpellings() []string {
	if f.Args == "" {
		return nil
	}
	quoted, _ := json.Marshal(f.Args) // a text always has a form
	spellings := []string{f.Args}
	if escaped := string(quoted[1 : len(quoted)-1]); escaped != f.Args {
		spellings = append(spellings, escaped)
	}
	return spellings
}

// words are the conditions of the filter, for people.
func (f *Filter) words() map[string]any {
	words := map[string]any{}
	add := func(name string, given bool, value any) {
		if given {
			words[name] = value
		}
	}
	add("states", len(f.States) > 0, f.States)
	add("jobs", len(f.Jobs) > 0, f.Jobs)
	add("queues", len(f.Queues) > 0, f.Queues)
	add("tag", f.Tag != "", f.Tag)
	add("key", f.Key != "", f.Key)
	add("schedule", f.Schedule != "", f.Schedule)
	add("parent", f.Parent != RunID{}, f.Parent)
	add("waiting_on", f.WaitingOn != RunID{}, f.WaitingOn)
	add("batch", f.Batch != BatchID{}, f.Batch)
	add("worker", f.Worker != "", f.Worker)
	add("error", f.Error != "", f.Error)
	add("args", f.Args != "", f.Args)
	add("metadata", len(f.Metadata) > 0, f.Metadata)
	add("ended_since", !f.EndedSince.IsZero(), f.EndedSince.UTC())
	add("since", !f.Since.IsZero(), f.Since.UTC())
	add("until", !f.Until.IsZero(), f.Until.UTC())
	add("before", f.Before != RunID{}, f.Before)
	return words
}

// longestWord bounds a name by which runs, or changes, are looked for, in bytes. It is more
// than any name, tag or key has.
const longestWord = 1000

// checkWords refuses what no run can match, and what not every engine could
// search for.
func (f *Filter) checkWords() error {
	if f.IDs != nil && len(f.IDs) == 0 {
		return fmt.Errorf("%w: an empty list of ids: want nil for any run", ErrInvalid)
	}
	if links := f.links(); links > 1 || links == 1 && f.IDs != nil {
		return fmt.Errorf("%w: want only one of ids, a parent, a run that is waited for, and a batch", ErrInvalid)
	}
	for _, state := range f.States {
		if !slices.Contains(States(), state) {
			return fmt.Errorf("%w: %v is not the state of a run", ErrInvalid, state)
		}
	}
	for _, text := range slices.Concat(f.Jobs, f.Queues, []string{f.Tag, f.Key, f.Schedule, f.Worker}) {
		if len(text) > longestWord {
			return fmt.Errorf("%w: %q: want at most %d bytes", ErrInvalid, storable.Clip(text, 150), longestWord)
		}
	}
	for _, text := range slices.Concat(f.Jobs, f.Queues, []string{f.Tag, f.Key, f.Schedule, f.Worker, f.Error, f.Args}) {
		if !storable.IsText(text) {
			return fmt.Errorf("%w: %q: want text without NUL", ErrInvalid, storable.Clip(text, 150))
		}
	}
	if err := f.Metadata.Check(); err != nil {
		return fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	return nil
}

// firstID is the smallest id that can be created at an instant.
func firstID(at time.Time) RunID {
	var id RunID
	var stamp [8]byte
	binary.BigEndian.PutUint64(stamp[:], uint64(at.UnixMilli())) //nolint:gosec // a year from 1970 on
	copy(id[:6], stamp[2:])
	return id
}

// Page is one page of a list, newest first. A store reads a bounded number
// of runs for one page: where few runs pass the filter a page may be short, or
// empty, although there are more. Only Next reports whether it is the last.
type Page struct {
	Runs []Record
	Next RunID // cursor of the next page; the zero id: this is the last
	// Examined is how many runs were compared with the filter when the page ends because
	// of that bound; 0: it ends for another reason.
	Examined int
}
