package durable

import (
	"errors"
	"fmt"
	"time"
	"unicode/utf8"
)

// MaxKeyLength bounds a run's key, in bytes.
const MaxKeyLength = 255

// KeyPolicy says what becomes of an enqueue while another run of the job holds
// its key.
type KeyPolicy int8

const (
	// KeyUnique leaves the holder as it stands, until it has ended and its time
	// is over.
	KeyUnique KeyPolicy = iota
	// KeyReplace gives a pending holder what the new run has.
	KeyReplace
	// KeyDebounce is KeyReplace with a due time that moves.
	KeyDebounce
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

// Unique stores the run unless a run of the job with this key is there that
// has not ended; the receipt then has that one's ID and says Existing. A run
// that UniqueFor has stored keeps the key for its time. Only one of Unique,
// UniqueFor, Replace and Debounce may be given.
func Unique(key string) Option {
	return keyed("Unique", Key{Text: key, Policy: KeyUnique})
}

// UniqueFor is Unique, and the run keeps the key for d after it was enqueued,
// on the store's clock, even when it has ended. A run that has not ended by
// then keeps the key until it does. A run that is no longer in the store, since
// retention or an operator has deleted it, holds no key.
func UniqueFor(key string, d time.Duration) Option {
	return keyed("UniqueFor", Key{Text: key, Policy: KeyUnique, HeldFor: d})
}

// Replace changes the pending run of the job that holds the key, if there is
// one: it gets this run's args, queue, priority, max attempts, timeout, crash
// policy, tags, expiry and due time, and begins with its first attempt. Its ID
// stays, and the receipt says Existing. A holder that is running has begun with
// the older args: the new run is then stored beside it, and takes the key.
func Replace(key string) Option {
	return keyed("Replace", Key{Text: key, Policy: KeyReplace})
}

// Debounce is Replace, and the run is due quiet after the latest enqueue, but
// not later than atMost after the pending run was first stored (zero: no
// bound). It does not go with At and After.
func Debounce(key string, quiet, atMost time.Duration) Option {
	return keyed("Debounce", Key{Text: key, Policy: KeyDebounce, Quiet: quiet, AtMost: atMost})
}

func keyed(name string, key Key) Option {
	return Option{name, onlyRun, func(p *policy) {
		p.key = key
		p.keyedBy = append(p.keyedBy[:len(p.keyedBy):len(p.keyedBy)], name)
	}}
}

// checkKeyed tells what is wrong with the key options that were given.
func (p *policy) checkKeyed() error {
	switch {
	case len(p.keyedBy) > 1:
		return fmt.Errorf("both %s and %s are given: want one key for a run", p.keyedBy[0], p.keyedBy[1])
	case len(p.keyedBy) == 1 && p.key.Text == "":
		return fmt.Errorf("%s: the key is empty", p.keyedBy[0])
	default:
		return nil
	}
}

// check tells what is wrong with the key of a run that is due at or after.
func (k *Key) check(at time.Time, after time.Duration) error {
	switch {
	case *k == Key{}:
		return nil
	case k.Text == "":
		return errors.New("the key is empty")
	case len(k.Text) > MaxKeyLength || !utf8.ValidString(k.Text) || hasControl(k.Text):
		return fmt.Errorf("key %q: want 1 to %d bytes of text without control characters", clip(k.Text, 300), MaxKeyLength)
	case k.Policy < KeyUnique || k.Policy > KeyDebounce:
		return fmt.Errorf("%v is unknown", k.Policy)
	case k.HeldFor != 0 && k.Policy != KeyUnique:
		return fmt.Errorf("key %q: held for %v does not go with %v", k.Text, k.HeldFor, k.Policy)
	case k.HeldFor < 0 || k.HeldFor > maxDelay:
		return fmt.Errorf("key %q: held for %v: want 0 to %v", k.Text, k.HeldFor, maxDelay)
	case k.Policy != KeyDebounce && (k.Quiet != 0 || k.AtMost != 0):
		return fmt.Errorf("key %q: quiet %v and at most %v do not go with %v", k.Text, k.Quiet, k.AtMost, k.Policy)
	case k.Policy != KeyDebounce:
		return nil
	case k.Quiet < time.Millisecond || k.Quiet > maxDelay:
		return fmt.Errorf("key %q: quiet %v: want 1ms to %v", k.Text, k.Quiet, maxDelay)
	case k.AtMost != 0 && (k.AtMost < k.Quiet || k.AtMost > maxDelay):
		return fmt.Errorf("key %q: at most %v: want 0 for no bound, or %v (its quiet time) to %v", k.Text, k.AtMost, k.Quiet, maxDelay)
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

// KeyHolder is the run that holds a key, as a store finds it when a run is
// enqueued with that key. The zero value is nobody.
type KeyHolder struct {
	Stored bool  // the run is in the store
	Latest RunID // of the enqueue that stored the holder, or replaced it last
	State  State
	Held   bool // the time of its UniqueFor is not over
}

// KeyVerdict is what becomes of a run that is enqueued with a key.
type KeyVerdict int8

// The verdicts.
const (
	TakesKey       KeyVerdict = iota + 1 // it is stored, and holds the key from now on
	LeavesHolder                         // nothing changes; the receipt names the holder
	ReplacesHolder                       // the holder gets what the run has; the receipt names the holder
)

// Judge decides about a run that is not in the store. Every store asks it, with
// the key locked against everybody else.
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
