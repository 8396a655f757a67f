package sqlite

import (
	"context"
	"database/sql"
	"sync"

	"github.com/durable-worker/durable-worker/store"
)

// room is how many runs a statement by number takes; a shorter list is filled
// with one of its own. The small one is for claims of single runs.
const (
	smallRoom = 8
	largeRoom = 128
)

// byNumber is one statement with room for few and for many runs.
type byNumber struct{ few, many *sql.Stmt }

// exec runs the statement for all the numbers and counts the rows changed.
func (b byNumber) exec(ctx context.Context, numbers []int64, first ...any) (changed int64, err error) {
	for len(numbers) > 0 {
		statement, room := b.many, largeRoom
		if len(numbers) <= smallRoom {
			statement, room = b.few, smallRoom
		}
		n := min(room, len(numbers))
		args := append(make([]any, 0, len(first)+room), first...)
		for i := range room {
			args = append(args, numbers[min(i, n-1)])
		}
		result, err := statement.ExecContext(ctx, args...)
		if err != nil {
			return 0, err
		}
		rows, err := result.RowsAffected()
		if err != nil {
			return 0, err
		}
		changed, numbers = changed+rows, numbers[n:]
	}
	return changed, nil
}

// mostNumbers bounds what is remembered: enough for the runs of all workers of a
// process, and about 4 MB.
const mostNumbers = 1 << 16

// numbering remembers the number (runs.seq) of runs that were claimed here, so that
// their settle need not look it up. Nothing depends on it: a settle by number
// names the claim as well, and one that does not find all its runs is undone and
// done by id.
type numbering struct {
	mu sync.Mutex // guards of
	of map[store.RunID]int64
}

func (n *numbering) learn(runs []store.ClaimedRun, seqs []int64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.of == nil || len(n.of)+len(seqs) > mostNumbers {
		n.of = make(map[store.RunID]int64)
	}
	for i, seq := range seqs {
		n.of[runs[i].ID] = seq
	}
}

// find returns the numbers of the plain successes of a settlement, or nothing
// when one is not known.
func (n *numbering) find(settlement *store.Settlement) []int64 {
	n.mu.Lock()
	defer n.mu.Unlock()
	found := make([]int64, 0, len(settlement.Runs))
	for i := range settlement.Runs {
		if !plain(&settlement.Runs[i]) {
			continue
		}
		seq, ok := n.of[settlement.Runs[i].ID]
		if !ok {
			return nil
		}
		found = append(found, seq)
	}
	return found
}

// forget drops what has been settled.
func (n *numbering) forget(settlements []store.Settlement) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for i := range settlements {
		for k := range settlements[i].Runs {
			delete(n.of, settlements[i].Runs[k].ID)
		}
	}
}
