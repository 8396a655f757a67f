package postgres

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/durable-worker/durable-worker/internal/admit"
	"github.com/durable-worker/durable-worker/internal/rules"
	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/postgres/internal/conn"
	"github.com/durable-worker/durable-worker/store/postgres/internal/queries"
	"github.com/durable-worker/durable-worker/store/postgres/internal/wake"
)

// While runs wait for the places that others leave, a worker settles and claims in turns. It
// then sends both in one transaction, which hands the places on (see queries.HandOn): the
// settle wakes a worker of its process before it is sent, and waits for that worker's claim.
// A settle that meets no claim is sent on its own, and wakes workers afterwards. So is each of
// the two if the database refuses both.

const (
	// handWait is the longest that a settle waits for a claim.
	handWait = 5 * time.Millisecond
	// handFor is how long places are handed on after an admission from the same line has
	// decided about all that waits: it bounds for how long runs that are not eligible are skipped.
	handFor = 50 * time.Millisecond
	// handRest is how long none is handed on after a settle has waited in vain, for the first
	// time; handRestMost after many times in a row.
	handRest     = 10 * time.Millisecond
	handRestMost = time.Second
	// handMost bounds the claims, and the lines, that are remembered.
	handMost = 10_000
)

// handing is what is known of the places that can be handed on.
type handing struct {
	settles joining
	wait    time.Duration // the longest that a settle waits for a claim

	mu      sync.Mutex
	claims  map[lease.ClaimID][]store.LineID // for whose places runs waited, and the lines of their turns
	decided map[store.LineID]time.Duration   // monotonic clock: when an admission from the line has decided
	rest    time.Duration                    // after a settle has waited in vain; zero: the last one has not
	until   time.Duration                    // monotonic clock: the end of that
}

// decide records that an admission from lines has decided about all that waits.
func (h *handing) decide(lines []store.LineID) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.decided) >= handMost || h.decided == nil {
		h.decided = map[store.LineID]time.Duration{}
	}
	for _, line := range lines {
		h.decided[line] = lease.Elapsed()
	}
}

// met records whether a settle has met a claim that has started runs.
func (h *handing) met(yes bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if yes {
		h.rest = 0
		return
	}
	h.rest = min(max(2*h.rest, handRest), handRestMost)
	h.until = lease.Elapsed() + h.rest
}

// expect remembers that runs wait for the places of a claim.
func (h *handing) expect(claim lease.ClaimID, lines []store.LineID) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.claims) >= handMost || h.claims == nil {
		h.claims = map[lease.ClaimID][]store.LineID{}
	}
	h.claims[claim] = lines
}

// lines returns the lines of the places that a settle frees for runs that wait; none while the
// last settles have waited in vain, and when it is time for an admission from one of them.
func (h *handing) lines(work []*settling) (lines []store.LineID) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, w := range work {
		lines = append(lines, h.claims[w.Claim]...)
		if w.Last {
			delete(h.claims, w.Claim)
		}
	}
	now := lease.Elapsed()
	if now < h.until || slices.ContainsFunc(lines, func(line store.LineID) bool {
		at, known := h.decided[line]
		return !known || now-at >= handFor
	}) {
		return nil
	}
	return lines
}

// joinHandOn settles together with a claim that starts runs in the places that become free,
// and reports whether that has succeeded. If not, what was settled is not known.
func (s *Store) joinHandOn(ctx context.Context, work []*settling) bool {
	lines := s.handing.lines(work)
	if len(lines) == 0 || !allPlain(work) {
		return false
	}
	one := s.handing.settles.add(work)
	dues := wake.DuesOn(lines)
	for i := range dues {
		dues[i].Unseen = true
	}
	s.wake.GiveDue(dues)
	done := s.handing.settles.await(ctx, one, s.handing.wait)
	s.handing.met(done && one.started > 0)
	if !done || one.started == 0 {
		return done
	}
	for _, w := range work {
		w.wanted, w.blocked = without(w.wanted, one.handed), without(w.blocked, one.handed)
	}
	return true
}

// allPlain reports whether all runs have plainly succeeded.
func allPlain(work []*settling) bool {
	return !slices.ContainsFunc(work, func(w *settling) bool {
		return w.general || slices.ContainsFunc(w.Runs, func(run store.Settled) bool { return !rules.Plain(&run.Outcome) })
	})
}

// errUnheld has a settle sent again, by the statements that settle a part of a claim.
var errUnheld = errors.New("the lease is not that of a whole claim")

func without(lines, handed []store.LineID) []store.LineID {
	return slices.DeleteFunc(lines, func(line store.LineID) bool { return slices.Contains(handed, line) })
}

// handOn sends the settles that wait for a claim of limited runs, and starts runs in the places
// that they free. Without runs and without an error the claim is still to be made.
func (s *Store) handOn(ctx context.Context, request *store.ClaimRequest, worker int32, got *dealing) error {
	got.runs, got.dealt = got.runs[:0], 0
	if request.Alone {
		return nil
	}
	taken := s.handing.settles.take()
	if len(taken) == 0 {
		return nil
	}
	var work []*settling
	for _, one := range taken {
		work = append(work, one.work...)
	}
	slices.SortStableFunc(work, func(a, b *settling) int { return bytes.Compare(a.Claim[:], b.Claim[:]) })
	lines, takes := asked(request)
	own := slices.DeleteFunc(slices.Clone(request.Lanes), func(lane store.LaneID) bool { return lane <= 0 })
	marks := s.marks.of(own)
	var on handedOn
	b := s.db.Hot(ctx)
	whole := addSettles(b, work)
	b.Add(queries.LockFreed, lines, takes)
	b.Add(queries.HandOn, uuid.UUID(request.Claim), worker, marks.gates, marks.lanes, marks.dues, laneNumbers(own),
		conn.Small(request.Limit), lines, int32(spareTurns), conn.Micro(request.Duration)).Query(func(rows pgx.Rows) error { return on.scan(rows, got) })
	var left bool
	b.Add(queries.TurnsLeft, lines, conn.Micro(store.WakeAhead)).QueryRow(func(row pgx.Row) error { return row.Scan(&left) })
	began := lease.Elapsed()
	err := s.db.Send(ctx, s.db.Engine, b)
	for _, one := range taken {
		if one.started = len(got.runs); one.started < request.Limit && !left {
			one.handed = lines
		}
	}
	if err == nil && whole.isUnheld() {
		answer(taken, errUnheld)
	} else {
		answer(taken, err)
	}
	switch conn.Code(err) {
	case "":
	case conn.UniqueViolation: // the claim was granted before
		return err
	default:
		got.runs, got.dealt = got.runs[:0], 0
		return nil
	}
	if err != nil || len(got.runs) == 0 {
		return err
	}
	if request.Exhausted != nil {
		*request.Exhausted = !left
	}
	s.handedOn(request, &on, own, &marks, lease.Elapsed()-began, got)
	return nil
}

// handedOn is what HandOn says of each run besides: in which gate it has started, and whether
// the line of that continues.
type handedOn struct {
	gates []int64
	deep  []bool
}

func (h *handedOn) scan(rows pgx.Rows, got *dealing) error {
	h.gates, h.deep = h.gates[:0], h.deep[:0]
	var gate int64
	var deep bool
	return got.scanEach(rows, func() { h.gates, h.deep = append(h.gates, gate), append(h.deep, deep) }, &gate, &deep)
}

// handedOn counts the runs that have started, and remembers where their lines begin now.
func (s *Store) handedOn(request *store.ClaimRequest, on *handedOn, own []store.LaneID, used *markArgs, took time.Duration, got *dealing) {
	examined, lines := map[int64]bool{}, map[lineAt]*lineRead{}
	var more []store.LineID
	for i := range got.runs {
		run, gate := &got.runs[i], on.gates[i]
		s.tally.Admitted(admit.GateID(gate))
		at := lineAt{gate, run.Lane}
		if lines[at] == nil {
			lines[at] = &lineRead{deep: on.deep[i]}
			if on.deep[i] {
				more = append(more, admit.LimitLine(admit.LimitOf(admit.GateID(gate))))
			}
		}
		lines[at].add(run.DueAt, true)
		examined[gate] = true
	}
	if len(lines) <= markMost {
		s.marks.learn(examined, own, lines, used, took)
	}
	if len(more) > 0 {
		s.handing.expect(request.Claim, slices.Compact(slices.Sorted(slices.Values(more))))
	}
	slices.SortFunc(got.runs, func(x, y store.ClaimedRun) int {
		return cmp.Or(x.DueAt.Compare(y.DueAt), bytes.Compare(x.ID[:], y.ID[:]))
	})
}

// expectHandOn remembers that places of the claim can be handed on: runs have stayed in line
// that say no more than their gate.
func (a *admission) expectHandOn(d *admit.Decision) {
	from, _ := asked(a.request)
	a.handing.decide(from)
	if len(d.Admitted) == 0 || len(d.Admitted) == len(a.input.Waiters) || len(a.said)+len(a.caps) > 0 {
		return
	}
	var lines []store.LineID
	for i := range d.Admitted {
		id := admit.LimitOf(d.Admitted[i].Gate)
		if limit := a.limits[id]; limit != nil && !limit.Rate() && limit.Action() == store.FullWait && !slices.Contains(lines, admit.LimitLine(id)) {
			lines = append(lines, admit.LimitLine(id))
		}
	}
	if len(lines) > 0 {
		a.handing.expect(a.request.Claim, lines)
	}
}
