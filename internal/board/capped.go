package board

import (
	"slices"
	"sync"

	"github.com/durable-worker/durable-worker/store"
)

// Capped is the lanes of capped queues, as they were when a store last read their heads. It
// says only where a claim has to move runs before any of them can be admitted: whether they
// may be claimed as they are, the store decides in the claim's own transaction. The zero
// value is empty and ready to be used.
type Capped struct {
	mu    sync.RWMutex
	lanes map[store.LaneID]struct{}
}

// Learn notes which of the lanes, in the order of their heads, are on capped queues.
func (c *Capped) Learn(heads []store.Head, capped []bool) {
	if !slices.Contains(capped, true) && c.none() {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.lanes == nil {
		c.lanes = map[store.LaneID]struct{}{}
	}
	for i, is := range capped {
		if lane := max(heads[i].Lane, -heads[i].Lane); is {
			c.lanes[lane] = struct{}{}
		} else {
			delete(c.lanes, lane)
		}
	}
}

func (c *Capped) none() bool {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return len(c.lanes) == 0
}

// Among are the steps for lanes of capped queues.
func (c *Capped) Among(steps []store.Step) (capped []store.Step) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if len(c.lanes) == 0 {
		return nil
	}
	for _, step := range steps {
		if _, is := c.lanes[max(step.Lane, -step.Lane)]; is {
			capped = append(capped, step)
		}
	}
	return capped
}
