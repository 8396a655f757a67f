package wake

import (
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/postgres/internal/conn"
)

// watchLocks returns the advisory locks that stand for the runs of a wake-up, one each for
// its unlimited and its limited runs. The lowest twelve bits are left for the tenth.
func watchLocks(n *conn.Namespace, due *store.Due) (locks []int64) {
	class := int64(int32(hashed("durable/"+n.Schema+"/watch"))) << 32 //nolint:gosec // any 32 bits will do
	lock := func(limited int64) { locks = append(locks, class|(int64(due.Lane)<<1|limited)&(1<<19-1)<<12) }
	if due.Mixed || !due.Limited {
		lock(0)
	}
	if due.Limited {
		lock(1)
	}
	return locks
}

// locksToTry returns the locks that a notification depends on. It returns none if workers
// must be notified in any case, because a watcher might not find all of these runs.
func (w *Waker) locksToTry(dues []store.Due) (locks []int64) {
	runs := 0
	for i := range dues {
		due := &dues[i]
		if !opens(due) || due.Lane <= 0 || due.Runs == 0 {
			return nil
		}
		runs += due.Runs
		locks = append(locks, watchLocks(w.db.Names, due)...)
	}
	if runs > store.RunsPerWorker || len(locks) > triedLanes {
		return nil
	}
	return locks
}
