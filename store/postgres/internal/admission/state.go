package admission

import (
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/durable-worker/durable-worker/internal/admit"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/postgres/internal/conn"
)

// admission is an admission in progress.
type admission struct {
	*Admitter

	session *pgxpool.Conn
	request *store.ClaimRequest
	worker  int32
	careful bool
	got     *Dealing

	input  admit.Input
	limits map[store.LimitID]*store.Limit
	known  map[admit.GateID]bool            // gates in input
	caps   map[store.LaneID]queueCap        // of lanes on capped queues
	others []int64                          // gates whose turns it did not take
	said   map[store.RunID][]store.LimitUse // of waiters that use more than their gate
	lapsed []int64                          // gates with permits of named owners whose time is over
	names  map[admit.GateID]string          // keys of gates that are not known yet

	freed []store.LineID // the lines of turns for places that refused runs had

	used markArgs      // by which lines were read
	took time.Duration // to take the turns and to read
	// entries are the lines in rounds that were read, which took so long.
	entries     []entryRead
	tookEntries time.Duration
}

// candidates are rows of waiting as parameters.
type candidates struct {
	gates []int64
	lanes []int32
	dues  []time.Time
	ids   conn.UUIDs
}

func (c *candidates) add(w *admit.Waiter) { c.addAt(w, w.Gate, w.DueAt) }

func (c *candidates) addAt(w *admit.Waiter, gate admit.GateID, due time.Time) {
	c.gates, c.lanes = append(c.gates, int64(gate)), append(c.lanes, w.Lane)
	c.dues, c.ids = append(c.dues, due), append(c.ids, w.Run)
}

// asked are the lines that turns are taken from, and how many of each.
func asked(request *store.ClaimRequest) (lines, takes []int32) {
	lines, takes = make([]int32, len(request.Admissions)), make([]int32, len(request.Admissions))
	for i, one := range request.Admissions {
		lines[i], takes[i] = one.Line, conn.Small(one.Take)
	}
	return lines, takes
}

// spareTurns bounds the turns that go with one that is taken.
const spareTurns = 50

// keyOf is the key of a gate, as one of its runs spells it.
func (a *admission) keyOf(gate admit.GateID, uses []store.LimitUse) string {
	limit := a.limits[admit.LimitOf(gate)]
	if limit == nil {
		return ""
	}
	return admit.KeyOf(gate, limit.Secret, uses)
}

func laneNumbers(lanes []store.LaneID) []int32 { return orNone(lanes) }

// orNone makes a list that is never nil.
func orNone(ids []int32) []int32 {
	if ids == nil {
		return []int32{}
	}
	return ids
}

// queueCap is the cap of a queue.
type queueCap struct {
	gate  int64
	queue string
}

// entryRead is the read of the line of an entry.
type entryRead struct {
	e   *admit.Entry
	low time.Time // from where it was read; zero: from its beginning
}

// readDepth is how much to read of lines and rounds; the zero value: as much as each gate may
// admit.
type readDepth struct {
	lines   *int32
	entries int32
}

func (r readDepth) ofRounds() *int32 {
	if r.entries == 0 {
		return nil
	}
	return &r.entries
}

// entryAt is the entry of a line that was read, or nil.
func (a *admission) entryAt(line admit.GateID, lane store.LaneID) *admit.Entry {
	for i := range a.input.Rounds {
		if e := &a.input.Rounds[i]; e.Line == line && e.Lane == lane {
			return e
		}
	}
	return nil
}
