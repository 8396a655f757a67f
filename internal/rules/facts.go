package rules

import (
	"cmp"
	"slices"
	"time"

	"github.com/durable-worker/durable-worker/internal/storable"
	"github.com/durable-worker/durable-worker/store"
)

// BulkDeletesShown is how many deletions by filter the facts of a run have that is not
// there.
const BulkDeletesShown = 5

// Lately is over how long attempts are counted that have ended before a run starts.
const Lately = 5 * time.Minute

// LeftBehind is how long a lease has to have expired for it to be remarkable.
const LeftBehind = time.Minute

// ClocksDiffer is how far the clock of a client may be ahead of the database's, so that the
// id of a run is from later than its row.
const ClocksDiffer = 10 * time.Second

// DeletedSince is the earliest instant at which a run with an id can have been deleted. An id
// has the time of the client's clock, and ids of a burst are even some milliseconds ahead
// of that.
func DeletedSince(id store.RunID) time.Time { return MadeAt(id).Add(-ClocksDiffer) }

// MadeAt is when a run was made, by its id, to the millisecond.
func MadeAt(id store.RunID) time.Time {
	ms := int64(0)
	for _, b := range id[:6] {
		ms = ms<<8 | int64(b)
	}
	return time.UnixMilli(ms).UTC()
}

// PauseOf returns who has paused a queue, by the newest change of the queue.
func PauseOf(newest []store.Change) *store.QueuePause {
	for _, c := range newest {
		if c.Action == string(store.PauseQueue) {
			return &store.QueuePause{By: c.Actor, Since: &c.At}
		}
	}
	return &store.QueuePause{}
}

// UnderCap adds the cap of its queue to the limits of a pending run, which has it from the
// moment a claim or an admission meets the run. Known is the cap, nil if there is none.
func UnderCap(uses []store.LimitUse, queue string, known *store.Limit) []store.LimitUse {
	name := store.QueueCap(queue)
	if known == nil || known.State != store.LimitActive && known.State != store.LimitDraining ||
		slices.ContainsFunc(uses, func(use store.LimitUse) bool { return use.Limit == name }) {
		return uses
	}
	return append(slices.Clip(uses), store.LimitUse{Limit: name})
}

// LatestWorkers are the workers that reported last, ordered as they are listed.
func LatestWorkers(all []store.WorkerInfo, most int) []store.WorkerInfo {
	if len(all) > most {
		slices.SortFunc(all, func(a, b store.WorkerInfo) int { return b.SeenAt.Compare(a.SeenAt) })
		all = all[:most]
		SortWorkers(all)
	}
	return all
}

// CompareNearness orders lanes by how near they are to that of a run of a job on a queue:
// the run's own first, then those of its queue, then others.
func CompareNearness(a, b *store.LaneFacts, queue, job string) int {
	far := func(l *store.LaneFacts) int {
		switch {
		case l.Queue == queue && l.Job == job:
			return 0
		case l.Queue == queue:
			return 1
		default:
			return 2
		}
	}
	return cmp.Compare(far(a), far(b))
}

// ProblemReason is as much of a reason as a list of problems has.
func ProblemReason(reason string) string { return storable.Clip(reason, store.MaxProblemReason) }

// CompareProblems orders problems as they are listed.
func CompareProblems(a, b store.Problem) int {
	return cmp.Or(b.EndedAt.Compare(a.EndedAt), slices.Compare(b.Run[:], a.Run[:]))
}
