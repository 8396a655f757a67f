package store

import (
	"errors"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/durable-worker/durable-worker/internal/storable"
)

// MaxKeyLength bounds a run's key, in bytes.
const MaxKeyLength = 255

// KeyPolicy says what happens to an enqueue while another run of the job holds
// its key.
type KeyPolicy int8

const (
	// KeyUnique leaves the holder unchanged, until it has ended and its time
	// is over.
	KeyUnique KeyPolicy = iota
	// KeyReplace gives a pending holder what the new run has.
	KeyReplace
	// KeyDebounce is KeyReplace with a due time that moves.
	KeyDebounce
)

// Key is what the runs of a job have in common that shall not be stored twice.
// A key belongs to its job: two jobs may use the same text. The zero value is
// no key. The options Unique, UniqueFor, Replace and Debounce make one.
type Key struct {
	Text    string // 1 to MaxKeyLength bytes of UTF-8 without control characters
	Policy  KeyPolicy
	HeldFor time.Duration // KeyUnique: after the enqueue, even when the run has ended; zero: only while it has not
	Quiet   time.Duration // KeyDebounce: until due, after the latest enqueue
	AtMost  time.Duration // KeyDebounce: until due, after the pending run was first stored; zero: no bound
}

// KeyHolder is the run that holds a key, as a store finds it when a run is
// enqueued with that key. The zero value means that the key is free.
type KeyHolder struct {
	Stored bool  // the run is in the store
	Latest RunID // of the enqueue that stored the holder, or replaced it last
	State  State
	Held   bool // the time of its UniqueFor is not over
}

// KeyVerdict is what happens to a run that is enqueued with a key.
type KeyVerdict int8

// The verdicts.
const (
	TakesKey       KeyVerdict = iota + 1 // it is stored, and holds the key from now on
	LeavesHolder                         // nothing changes; the receipt names the holder
	ReplacesHolder                       // the holder gets what the run has; the receipt names the holder
)

// String returns the policy's word.
func (p KeyPolicy) String() string {
	switch p {
	case KeyUnique:
		return "unique"
	case KeyReplace:
		return "replace"
	case KeyDebounce:
		return "debounce"
	default:
		return fmt.Sprintf("key policy %d", int8(p))
	}
}

// check reports what is wrong with the key of a run that is due at or after.
func (k *Key) check(at time.Time, after time.Duration) error {
	switch {
	case *k == Key{}:
		return nil
	case k.Text == "":
		return errors.New("the key is empty")
	case len(k.Text) > MaxKeyLength || !utf8.ValidString(k.Text) || storable.HasControl(k.Text):
		return fmt.Errorf("key %q: want 1 to %d bytes of text without control characters", storable.Clip(k.Text, 300), MaxKeyLength)
	case k.Policy < KeyUnique || k.Policy > KeyDebounce:
		return fmt.Errorf("%v is unknown", k.Policy)
	case k.HeldFor != 0 && k.Policy != KeyUnique:
		return fmt.Errorf("key %q: held for %v does not go with %v", k.Text, k.HeldFor, k.Policy)
	case k.HeldFor < 0 || k.HeldFor > MaxDelay:
		return fmt.Errorf("key %q: held for %v: want 0 to %v", k.Text, k.HeldFor, MaxDelay)
	case k.Policy != KeyDebounce && (k.Quiet != 0 || k.AtMost != 0):
		return fmt.Errorf("key %q: quiet %v and at most %v do not go with %v", k.Text, k.Quiet, k.AtMost, k.Policy)
	case k.Policy != KeyDebounce:
		return nil
	case k.Quiet < time.Millisecond || k.Quiet > MaxDelay:
		return fmt.Errorf("key %q: quiet %v: want 1ms to %v", k.Text, k.Quiet, MaxDelay)
	case k.AtMost != 0 && (k.AtMost < k.Quiet || k.AtMost > MaxDelay):
		return fmt.Errorf("key %q: at most %v: want 0 for no bound, or %v (its quiet time) to %v", k.Text, k.AtMost, k.Quiet, MaxDelay)
	case !at.IsZero() || after != 0:
		return fmt.Errorf("key %q: debounce says when the run is due: it does not go with at and after", k.Text)
	default:
		return nil
	}
}

// Delay is how long after it is stored the run is due, where it has no At.
func (r *NewRun) Delay() time.Duration {
	if r.Key.Policy == KeyDebounce {
		return r.Key.Quiet
	}
	return r.After
}

// Judge decides about a run that is not in the store. Every store calls it, with
// the key locked against all other transactions.
func (k Key) Judge(run RunID, holder KeyHolder) KeyVerdict {
	switch {
	case !holder.Stored:
		return TakesKey
	case holder.Latest == run: // its answer was lost: it has replaced the holder already
		return LeavesHolder
	case k.Policy == KeyUnique && (!holder.State.Terminal() || holder.Held):
		return LeavesHolder
	case k.Policy != KeyUnique && holder.State == Pending:
		return ReplacesHolder
	default:
		return TakesKey
	}
}

// ReplacedDue is when a holder that was first stored at an instant is due, once
// the run has replaced it now.
func (r *NewRun) ReplacedDue(now, stored time.Time) time.Time {
	if !r.At.IsZero() {
		return r.At
	}
	due := now.Add(r.Delay())
	if bound := stored.Add(r.Key.AtMost); r.Key.AtMost > 0 && bound.Before(due) {
		return bound
	}
	return due
}
