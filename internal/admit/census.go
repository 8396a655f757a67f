package admit

import (
	"cmp"
	"slices"
	"time"

	"github.com/durable-worker/durable-worker/store"
)

// KeyCount is what has been counted of one key of a limit.
type KeyCount struct {
	Gate    GateID
	Line    GateID // the longest of the lines whose runs wait for it; zero: none does
	longest int64
	Waiting store.Count
	Oldest  time.Time // when the first waiting run was due; zero: none waits
	InUse   int
}

// KeyCounts collects what is counted of the keys of one limit.
type KeyCounts struct {
	Limit  store.LimitID
	byGate map[GateID]*KeyCount
}

// Of is what has been counted of a key so far.
func (c *KeyCounts) Of(gate GateID) *KeyCount {
	if c.byGate == nil {
		c.byGate = map[GateID]*KeyCount{}
	}
	known := c.byGate[gate]
	if known == nil {
		known = &KeyCount{Gate: gate}
		c.byGate[gate] = known
	}
	return known
}

// Wait adds the runs of a line to those that wait for a key.
func (c *KeyCounts) Wait(gate, line GateID, waiting store.Count, oldest time.Time) {
	if waiting.N == 0 {
		return
	}
	known := c.Of(gate)
	known.Waiting = known.Waiting.Plus(waiting)
	if waiting.N > known.longest {
		known.Line, known.longest = line, waiting.N
	}
	if known.Oldest.IsZero() || oldest.Before(known.Oldest) {
		known.Oldest = oldest
	}
}

// WaitInSet adds the runs of the line of a set, which need these gates, to those that wait
// for the key that they have of the limit.
func (c *KeyCounts) WaitInSet(line GateID, gates []GateID, waiting store.Count, oldest time.Time) {
	for _, gate := range gates { // those with a key come first
		if !IsSet(gate) && LimitOf(gate) == c.Limit {
			c.Wait(gate, line, waiting, oldest)
			return
		}
	}
}

// Len is how many keys there are.
func (c *KeyCounts) Len() int { return len(c.byGate) }

// Top returns so many keys: those for which most runs wait, then those that have most in
// use.
func (c *KeyCounts) Top(most int) []*KeyCount {
	all := make([]*KeyCount, 0, len(c.byGate))
	for _, one := range c.byGate {
		all = append(all, one)
	}
	slices.SortFunc(all, func(a, b *KeyCount) int {
		return cmp.Or(cmp.Compare(b.Waiting.N, a.Waiting.N), cmp.Compare(b.InUse, a.InUse), cmp.Compare(a.Gate, b.Gate))
	})
	return all[:min(len(all), most)]
}

// KeyUse is the key as a store shows it: spelled as one of its runs does, or as the store
// has kept it.
func (k *KeyCount) KeyUse(key string, notBefore *time.Time) store.KeyUse {
	use := store.KeyUse{Key: key, Unnamed: key == "" && Keyed(k.Gate), InUse: k.InUse, Waiting: k.Waiting, NotBefore: notBefore}
	if !k.Oldest.IsZero() {
		oldest := k.Oldest.UTC()
		use.OldestDue = &oldest
	}
	return use
}
