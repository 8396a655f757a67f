package durable

import (
	"fmt"
	"time"

	"github.com/durable-worker/durable-worker/store"
)

// Unique stores the run unless an unfinished run of the job holds this key; the receipt then
// has that run's ID and says Existing. A run stored with UniqueFor keeps the key for its
// time. Only one of Unique, UniqueFor, Replace and Debounce may be given.
func Unique(key string) Option {
	return keyed("Unique", store.Key{Text: key, Policy: store.KeyUnique})
}

// UniqueFor is like Unique, but the run holds the key for at least d after it was enqueued,
// by the store's clock, even if it has ended. A run that has not ended by then keeps the key
// until it does. A run that is no longer in the store, because retention or an operator has
// deleted it, holds no key.
func UniqueFor(key string, d time.Duration) Option {
	return keyed("UniqueFor", store.Key{Text: key, Policy: store.KeyUnique, HeldFor: d})
}

// Replace changes the pending run of the job that holds the key, if there is
// one: it gets this run's args, queue, priority, max attempts, timeout, crash
// policy, tags, expiry and due time, and begins with its first attempt. Its ID
// stays, and the receipt says Existing. A holder that is running has begun with
// the older args: the new run is then stored as another run, and takes the key.
func Replace(key string) Option {
	return keyed("Replace", store.Key{Text: key, Policy: store.KeyReplace})
}

// Debounce is like Replace, but also moves the due time: the run is due quiet
// after the latest enqueue, and no later than atMost after the pending run was
// first stored (zero: no bound). You cannot combine it with At and After.
func Debounce(key string, quiet, atMost time.Duration) Option {
	return keyed("Debounce", store.Key{Text: key, Policy: store.KeyDebounce, Quiet: quiet, AtMost: atMost})
}

func keyed(name string, key store.Key) Option {
	return Option{name, onlyRun, func(p *policy) {
		p.key = key
		p.keyedBy = append(p.keyedBy[:len(p.keyedBy):len(p.keyedBy)], name)
	}}
}

// checkKeyed reports what is wrong with the key options that were given.
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
