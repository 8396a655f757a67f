package backend_test

import (
	"cmp"
	"database/sql"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/internal/pgtest"
	"github.com/durable-worker/durable-worker/internal/recur"
	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/backend"
)

var (
	histories = flag.Int("histories", 4, "random histories that are played on all engines")
	steps     = flag.Int("steps", 120, "of each history")
	firstSeed = flag.Uint64("seed", 0, "of the first history; 0: any")
)

// TestEnginesAnswerAlike plays the same random history on the store in memory, on SQLite
// and on PostgreSQL: what one answers, the others answer, and all have the same runs. In a
// history nothing depends on how long a step takes: what is due later is due in an hour.
func TestEnginesAnswerAlike(t *testing.T) {
	t.Parallel()
	for range *histories {
		play(t, engines...)
	}
}

// TestNothingIsStuckAfterAnyHistory plays histories in which runs have several limits, and
// expects that no engine keeps a run that is due from its workers. What waits for two limits
// may stand in another line on each, so that their answers are not compared.
func TestNothingIsStuckAfterAnyHistory(t *testing.T) {
	t.Parallel()
	for range *histories {
		for _, engine := range engines {
			play(t, engine)
		}
	}
}

func play(t *testing.T, engines ...string) {
	t.Helper()
	seed := *firstSeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Run(fmt.Sprint(strings.Join(engines, "+"), " ", seed), func(t *testing.T) {
		t.Parallel()
		newHistory(t, seed, engines...).play(*steps)
	})
}

// limits are of every kind. A rate's period is so long that none of it comes back. They share a
// secret, so that gates have the same numbers, and thus the same order, on all engines.
var limits = []store.Limit{ //nolint:gochecknoglobals // constants
	{Secret: uuid.UUID{1}, Name: "api", Kind: store.LimitSemaphore, Max: 2},
	{Secret: uuid.UUID{1}, Name: "mutex", Kind: store.LimitSemaphore, Max: 1},
	{Secret: uuid.UUID{1}, Name: "drop", Kind: store.LimitSemaphore, Max: 1, WhenFull: store.FullDrop},
	{Secret: uuid.UUID{1}, Name: "fail", Kind: store.LimitSemaphore, Max: 1, WhenFull: store.FullFail},
	{Secret: uuid.UUID{1}, Name: "retry", Kind: store.LimitSemaphore, Max: 1, WhenFull: store.FullRetry, RetryAfter: time.Hour},
	{Secret: uuid.UUID{1}, Name: "oldest", Kind: store.LimitSemaphore, Max: 1, WhenFull: store.FullCancelOldest},
	{Secret: uuid.UUID{1}, Name: "fixed", Kind: store.LimitFixedWindow, Max: 3, Period: store.MaxLimitPeriod},
	{Secret: uuid.UUID{1}, Name: "sliding", Kind: store.LimitSlidingWindow, Max: 3, Period: store.MaxLimitPeriod, Buckets: 10},
	{Secret: uuid.UUID{1}, Name: "bucket", Kind: store.LimitTokenBucket, Max: 1, Period: store.MaxLimitPeriod, Burst: 3},
	{Secret: uuid.UUID{1}, Name: "dynamic", Kind: store.LimitDynamicWindow, Max: 4, Period: store.MaxLimitPeriod, Buckets: 4, Least: 1, Most: 4},
}

// history is what was done to some stores, and what is known of it.
type history struct {
	t      *testing.T
	random *rand.Rand
	names  []string // of the engines
	stores []backend.Store
	bases  []*sql.DB // of the stores; nil: in memory
	dsns   []string  // likewise
	done   []string  // what was done, and what was answered
	quiet  bool      // what is asked changes nothing

	known    []store.NewRun
	held     []holding
	calendar timetable
	swept    bool
	reported map[string]store.WorkerReport // the last of each worker

	acts      func(store.WorkerID)                      // is called before a worker claims or settles, if it is not nil
	concluded func([]store.Settlement, []store.Verdict) // likewise, after it has settled
}

// holding is what a worker has claimed at a time, with the claim of each run on each store.
type holding struct {
	worker  store.WorkerID
	limited bool
	runs    []store.RunID
	claims  []map[store.RunID]lease.ClaimID
}

var engines = []string{"memory", "sqlite", "postgres"} //nolint:gochecknoglobals // a constant

func newHistory(t *testing.T, seed uint64, names ...string) *history {
	t.Helper()
	h := &history{t: t, random: rand.New(rand.NewPCG(seed, 1)), names: names, reported: map[string]store.WorkerReport{}, //nolint:gosec // a test
		calendar: timetable{now: calendarBegins, planner: recur.NewPlanner(), asked: map[string][]store.RunID{}, deleted: map[string]bool{}}}
	for _, name := range names {
		dsn := "memory:"
		switch name {
		case "sqlite":
			dsn = "sqlite:" + filepath.Join(t.TempDir(), "x.db")
		case "postgres":
			dsn = pgtest.Database(t)
		}
		one, err := backend.Open(t.Context(), dsn, backend.Config{})
		require.NoError(t, err)
		t.Cleanup(one.Close)
		_, err = one.Migrate(t.Context())
		require.NoError(t, err)
		h.stores, h.dsns = append(h.stores, one), append(h.dsns, dsn)
		h.open(one, dsn)
	}
	h.each("declare", func(s backend.Store) any {
		return wordOf(s.Declare(t.Context(), store.Declaration{Worker: store.WorkerID{Name: "w", Instance: uuid.UUID{2}}, Limits: limits}))
	})
	return h
}

// each does something to every store, and compares the answers.
func (h *history) each(what string, do func(s backend.Store) any) {
	h.t.Helper()
	var answers []string
	for _, s := range h.stores {
		text, err := json.Marshal(do(s))
		require.NoError(h.t, err)
		answers = append(answers, string(text))
	}
	if !h.quiet {
		h.done = append(h.done, what+" -> "+clip(answers[0], 600))
	}
	for i, answer := range answers {
		if answer != answers[0] {
			h.t.Fatalf("%s: %s and %s differ:\n%s\nafter\n%s", what, h.names[0], h.names[i], strings.Join(answers, "\n"), h.last())
		}
	}
}

// last is what was done last.
func (h *history) last() string { return strings.Join(h.done[max(len(h.done)-60, 0):], "\n") }

func clip(text string, most int) string { return text[:min(len(text), most)] }

// wordOf names an error by what it is.
func wordOf(err error) string {
	for _, known := range []error{store.ErrNotFound, store.ErrConflict, store.ErrInvalid, lease.ErrLost} {
		if errors.Is(err, known) {
			return known.Error()
		}
	}
	if err != nil {
		return err.Error()
	}
	return "ok"
}

func (h *history) play(steps int) {
	verbs := h.verbs()
	for step := range steps {
		verbs[h.random.IntN(len(verbs))]()
		if step%10 == 9 {
			h.compare()
		}
	}
	h.compare()
	h.sound()
	h.finish()
	h.sound()
}

// verbs are what the history does: what workers and callers do, and some of the rest, so
// that what is played at all happens often.
func (h *history) verbs() []func() {
	verbs := []func(){
		h.enqueue, h.enqueue, h.enqueue, h.claim, h.claim, h.claim, h.admit, h.admit, h.admit, h.settle, h.settle, h.settle, h.settle,
		h.crash, h.operate, h.operate, h.queue, h.limit, h.outside, h.handBack, h.list, h.acknowledge,
		h.report, h.enqueueUnder, h.renew, h.rerun,
	}
	for _, more := range [][]func(){
		{h.declare, h.declare, h.materialize, h.materialize, h.materialize, h.materialize, h.operateSchedule, h.saveSchedule, h.runSchedule, h.runSchedule, h.reevaluate},
		{h.list, h.changes, h.facts, h.facts, h.survey, h.problems, h.presence, h.presence},
		{h.bulk, h.reveal, h.cancelRequests, h.release, h.sweep},
		{h.transaction, h.transaction, h.transaction},
	} {
		if h.random.IntN(2) == 0 {
			verbs = append(verbs, more...)
		}
	}
	return verbs
}

// one chooses.
func one[T any](h *history, from ...T) T { return from[h.random.IntN(len(from))] }

func (h *history) enqueue() {
	var runs []store.NewRun
	for range 1 + h.random.IntN(4) {
		runs = append(runs, h.newRun())
	}
	if h.random.IntN(10) == 0 && len(h.known) > 0 {
		runs = append(runs, h.known[h.random.IntN(len(h.known))]) // its answer was lost
	}
	h.known = append(h.known, runs...)
	h.each("enqueue "+h.ids(runs), func(s backend.Store) any {
		receipts, err := s.Enqueue(h.t.Context(), runs...)
		return []any{receipts, wordOf(err)}
	})
}

func (h *history) newRun() store.NewRun {
	run := store.NewRun{
		ID: store.NewRunID(), Job: one(h, "mail", "pay"), Queue: one(h, "default", "default", "other"), Priority: h.random.IntN(3), Args: []byte(`{"n":1}`),
		MaxAttempts: 1 + h.random.IntN(3), Tags: one(h, nil, []string{"a"}, []string{"a", "b"}), Metadata: one(h, nil, store.Metadata{"tenant": "x"}),
		OnCrash: one(h, store.CrashRetry, store.CrashRetry, store.CrashDead), Timeout: one(h, 0, time.Minute),
	}
	switch h.random.IntN(6) {
	case 0:
		run.Key = store.Key{Text: one(h, "k", "l"), HeldFor: one(h, 0, time.Hour)}
	case 1:
		run.Key = store.Key{Text: one(h, "k", "l"), Policy: store.KeyReplace}
	case 2:
		run.Key = store.Key{Text: one(h, "k", "l"), Policy: store.KeyDebounce, Quiet: time.Hour, AtMost: one(h, 0, 2*time.Hour)}
	case 3:
		run.After = time.Hour
	case 4:
		run.At, run.Trace = one(h, calendarBegins, calendarBegins.AddDate(90, 0, 0)), "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	}
	if h.random.IntN(8) == 0 {
		run.ExpiresAt = one(h, calendarBegins, calendarBegins.AddDate(90, 0, 0))
	}
	if h.random.IntN(2) == 0 {
		run.Limits = []store.LimitUse{h.use()}
		if other := h.use(); len(h.names) == 1 && h.random.IntN(2) == 0 && other.Limit != run.Limits[0].Limit {
			run.Limits = append(run.Limits, other)
		}
	}
	return run
}

// use is one limit: in whose line a run waits that has several is the store's to say.
func (h *history) use() store.LimitUse {
	limit := limits[h.random.IntN(len(limits))]
	use := store.LimitUse{Limit: limit.Name, Key: one(h, "", "x"), Weight: h.random.IntN(3)}
	switch {
	case limit.Rate():
	case h.random.IntN(5) == 0:
		use.Owner, use.Mode = one(h, "ann", "bob"), store.LimitRelease
		if h.random.IntN(2) == 0 {
			use.Mode, use.Until, use.OwnedFor = store.LimitAcquire, store.UntilExpires, time.Hour
		}
	default:
		use.Until = one(h, 0, store.UntilSettled, store.UntilFinished, store.UntilFinishedOrRevived)
	}
	return use
}

// outside takes places and starts outside of runs.
func (h *history) outside() {
	limit := limits[h.random.IntN(len(limits))]
	request := store.LimitRequest{Limit: limit.Name, Key: one(h, "", "x"), Weight: 1 + h.random.IntN(2)}
	switch {
	case h.random.IntN(6) == 0:
		request.Usage, request.For, request.Weight = store.UsagePenalize, time.Hour, 0
	case limit.Rate():
		request.Usage = one(h, store.UsageTake, store.UsageCharge)
	default:
		request.Usage, request.Owner = one(h, store.UsageAcquire, store.UsageRenew, store.UsageGive, store.UsageGive), one(h, "ann", "bob")
		if request.Usage != store.UsageGive {
			request.For = time.Hour
		}
		if request.Usage != store.UsageAcquire {
			request.Weight = 0
		}
	}
	h.each(fmt.Sprintf("use %+v", request), func(s backend.Store) any {
		grant, err := s.UseLimit(h.t.Context(), request)
		return []any{grant.Granted, grant.RetryIn > time.Minute, grant.Expires > time.Minute, wordOf(err)}
	})
}

// ids names runs by when they were made.
func (h *history) ids(runs []store.NewRun) string {
	var names []string
	for _, run := range runs {
		names = append(names, fmt.Sprintf("%s(%s %s p%d key %v limits %v after %v tries %d)", run.ID, run.Job, run.Queue, run.Priority, run.Key, run.Limits, run.After, run.MaxAttempts))
	}
	return strings.Join(names, ", ")
}

// heads are the heads of a store in an order that all have.
func (h *history) heads(s backend.Store) []store.Head {
	heads, err := s.Heads(h.t.Context(), store.Serves{Queues: []string{"default", "other"}, Jobs: []string{"mail", "pay"}})
	require.NoError(h.t, err)
	slices.SortFunc(heads, func(a, b store.Head) int {
		return cmp.Or(cmp.Compare(kindOf(a), kindOf(b)), -cmp.Compare(a.Priority, b.Priority), cmp.Compare(a.Queue, b.Queue), cmp.Compare(a.Job, b.Job), a.DueAt.Compare(b.DueAt))
	})
	return heads
}

func kindOf(head store.Head) string {
	switch {
	case head.Line != 0 && head.Lane == 0:
		return "limit's line"
	case head.Line != 0 && head.Lane < 0:
		return "isolated line"
	case head.Line != 0:
		return "lane's line"
	case head.Lane < 0:
		return "isolated"
	default:
		return "lane"
	}
}

// request is what a claim begins with; every store fills in its own lanes.
func (h *history) request() store.ClaimRequest {
	return store.ClaimRequest{Claim: lease.NewClaimID(), Worker: one(h, store.WorkerID{Name: "v", Instance: uuid.UUID{1}}, store.WorkerID{Name: "w", Instance: uuid.UUID{2}}), Duration: time.Hour, Limit: 1 + h.random.IntN(4)}
}

func (h *history) claim() {
	request, isolated := h.request(), h.random.IntN(4) == 0
	if isolated {
		request.Limit, request.Alone = 1, true
	}
	h.take("claim", request, func(request *store.ClaimRequest, head store.Head) {
		if head.Line == 0 && head.Waiting && (head.Lane < 0) == isolated && head.In <= 0 {
			request.Steps = append(request.Steps, store.Step{Lane: head.Lane, Take: request.Limit})
		}
	})
}

// admit takes all turns that are due, so that the order of the lines of several limits
// means nothing.
func (h *history) admit() {
	request, isolated := h.request(), h.random.IntN(4) == 0
	request.Limit = 1000
	if isolated {
		request.Limit, request.Alone = 1, true
	}
	h.take("admit", request, func(request *store.ClaimRequest, head store.Head) {
		switch {
		case isolated && head.Line < 0 && head.Waiting && head.In <= 0 && len(request.Lanes) == 0:
			request.Admissions, request.Lanes = []store.Admission{{Line: head.Line, Take: 100}}, []store.LaneID{head.Line}
		case !isolated && head.Line == 0 && head.Lane > 0:
			request.Lanes = append(request.Lanes, head.Lane)
		case !isolated && head.Line > 0 && head.Waiting && head.In <= 0:
			request.Admissions = append(request.Admissions, store.Admission{Line: head.Line, Take: request.Limit})
		}
	})
}

// take claims from every store, and again while runs are found: a store may have turns
// that admit nothing, where another has none.
func (h *history) take(what string, request store.ClaimRequest, add func(*store.ClaimRequest, store.Head)) {
	again := 1
	if what == "admit" {
		again = 6
	}
	held := holding{worker: request.Worker, limited: what == "admit"}
	if h.acts != nil {
		h.acts(held.worker)
	}
	claims := []lease.ClaimID{request.Claim}
	for len(claims) < again {
		claims = append(claims, lease.NewClaimID())
	}
	h.each(what+fmt.Sprintf(" limit %d alone %v", request.Limit, request.Alone), func(s backend.Store) any {
		var answer []any
		claim := map[store.RunID]lease.ClaimID{}
		held.runs = nil
		for _, id := range claims {
			r := request
			r.Claim = id
			for _, head := range h.heads(s) {
				add(&r, head)
			}
			if len(r.Steps)+len(r.Admissions) == 0 || r.Alone && len(answer) > 0 {
				break
			}
			claimed, err := s.Claim(h.t.Context(), r)
			if err != nil {
				return wordOf(err)
			}
			for _, run := range claimed {
				answer = append(answer, []any{run.ID, run.Attempt, run.MaxAttempts, run.CrashCount, run.Timeout, run.Key, run.Tags, run.Metadata, string(run.Args), run.Expired, run.Trace, h.named(run.Schedule)})
				held.runs, claim[run.ID] = append(held.runs, run.ID), id
			}
		}
		if what == "admit" { // across keys no order is promised
			slices.SortFunc(answer, func(a, b any) int { return cmp.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
		}
		held.claims = append(held.claims, claim)
		return answer
	})
	if len(held.runs) > 0 {
		h.held = append(h.held, held)
	}
}

// together reports whether all runs are of one claim, on each store.
func (held *holding) together() bool {
	for _, claims := range held.claims {
		for _, id := range held.runs {
			if claims[id] != held.claims[0][held.runs[0]] {
				return false
			}
		}
	}
	return true
}

func (h *history) settle() {
	if len(h.held) == 0 {
		return
	}
	i := h.random.IntN(len(h.held))
	held := h.held[i]
	n := 1 + h.random.IntN(len(held.runs))
	ends := make([]store.Settled, n)
	for j := range ends {
		ends[j] = store.Settled{ID: held.runs[j], Outcome: one(h, store.Outcome{Kind: store.Success, Result: []byte(`1`)}, store.Outcome{Kind: store.Success},
			store.Outcome{Kind: store.Failure, Error: "e"}, store.Outcome{Kind: store.Failure, Error: "e", After: time.Hour},
			store.Outcome{Kind: store.Death, Error: "dead", Stack: "s"}, store.Outcome{Kind: store.Cancellation, Error: "c"},
			store.Outcome{Kind: store.Snoozed, After: time.Hour}, store.Outcome{Kind: store.HandedBack}, store.Outcome{Kind: store.HandedBack, Unbegun: true},
			store.Outcome{Kind: store.Misfit, Error: "m", After: time.Hour, Unbegun: true}, store.Outcome{Kind: store.Misfit, Error: "m"})}
	}
	h.end(i, 1+h.random.IntN(5)/4, ends)
}

// end settles the first runs of what is held, so many times.
func (h *history) end(i, times int, ends []store.Settled) {
	held := h.held[i]
	if h.acts != nil {
		h.acts(held.worker)
	}
	left := held.runs[len(ends):]
	if h.held[i].runs = left; len(left) == 0 {
		h.held = slices.Delete(h.held, i, i+1)
	}
	for again := range times {
		h.each(fmt.Sprintf("settle %v, repeat %d", outcomes(ends), again), func(s backend.Store) any {
			claims := held.claims[slices.Index(h.stores, s)]
			var settlements []store.Settlement
			var order []store.RunID
			for _, claim := range h.claimsOf(ends, claims) {
				settlement := store.Settlement{Claim: claim, Worker: held.worker, Limited: held.limited, Claimed: runsOf(claims, claim),
					Last: !slices.ContainsFunc(left, func(id store.RunID) bool { return claims[id] == claim })}
				for _, end := range ends {
					if claims[end.ID] == claim {
						settlement.Runs, order = append(settlement.Runs, end), append(order, end.ID)
					}
				}
				settlements = append(settlements, settlement)
			}
			verdicts, err := s.Settle(h.t.Context(), settlements)
			if h.concluded != nil && err == nil {
				h.concluded(settlements, verdicts)
			}
			answer := map[string]store.Verdict{}
			for j, verdict := range verdicts {
				answer[order[j].String()] = verdict
			}
			return []any{answer, wordOf(err)}
		})
	}
}

// runsOf is how many runs a claim was given.
func runsOf(claims map[store.RunID]lease.ClaimID, claim lease.ClaimID) (n int) {
	for _, its := range claims {
		if its == claim {
			n++
		}
	}
	return n
}

// claimsOf are the claims of some runs, each once.
func (h *history) claimsOf(ends []store.Settled, claims map[store.RunID]lease.ClaimID) (all []lease.ClaimID) {
	for _, end := range ends {
		if !slices.Contains(all, claims[end.ID]) {
			all = append(all, claims[end.ID])
		}
	}
	return all
}

func outcomes(ends []store.Settled) (texts []string) {
	for _, run := range ends {
		texts = append(texts, fmt.Sprintf("%s %v after %v", run.ID, run.Outcome.Kind, run.Outcome.After))
	}
	return texts
}

// crash lets the lease of a claim end, and its runs be reclaimed.
func (h *history) crash() {
	if len(h.held) == 0 {
		return
	}
	if i := h.random.IntN(len(h.held)); h.held[i].together() {
		h.crashOf(i, h.random.IntN(2) == 0) // or its worker settles too late
	}
}

// crashOf lets the lease of one of the claims end. Forget says that its worker does not
// come back.
func (h *history) crashOf(i int, forget bool) {
	held := h.held[i]
	if forget {
		h.held = slices.Delete(h.held, i, i+1)
	}
	h.each("crash", func(s backend.Store) any {
		claim := held.claims[slices.Index(h.stores, s)][held.runs[0]]
		renewed, err := s.Renew(h.t.Context(), []lease.ClaimID{claim}, time.Microsecond)
		return []any{len(renewed), wordOf(err)}
	})
	<-time.After(2 * time.Millisecond) // the microsecond is over on every clock
	h.each("reclaim", func(s backend.Store) any {
		result, err := s.Reclaim(h.t.Context(), store.ReclaimRequest{MaxCrashes: 3, Limit: 100})
		var answer []string
		for _, run := range result.Runs {
			answer = append(answer, fmt.Sprint(run.ID, run.Job, run.Queue, run.Worker, run.State, run.CrashCount))
		}
		slices.Sort(answer)
		return []any{result.Leases, answer, len(result.SetAside), wordOf(err)}
	})
}

func (h *history) handBack() {
	if len(h.held) == 0 {
		return
	}
	i := h.random.IntN(len(h.held))
	held := h.held[i]
	if !held.together() {
		return
	}
	h.held = slices.Delete(h.held, i, i+1)
	request := store.ClaimRequest{Claim: held.claims[0][held.runs[0]], Worker: held.worker, Duration: time.Hour, Limit: 1}
	if held.limited {
		request.Admissions = []store.Admission{{Line: 1, Take: 1}}
	} else {
		request.Steps = []store.Step{{Lane: 1, Take: 1}}
	}
	h.each(fmt.Sprint("hand back ", held.runs), func(s backend.Store) any {
		n, err := s.HandBack(h.t.Context(), request)
		return []any{n, wordOf(err)}
	})
}

// some are a few of the runs.
func (h *history) some() []store.RunID {
	var ids []store.RunID
	for range min(1+h.random.IntN(4), len(h.known)) {
		ids = append(ids, h.known[h.random.IntN(len(h.known))].ID)
	}
	return ids
}

func (h *history) operate() {
	action := one(h, store.CancelRuns, store.RetryRuns, store.RetryRuns, store.DeleteRuns)
	commands := parts(action, h.some())
	h.each(fmt.Sprint(action, commands), func(s backend.Store) any {
		var answer []any
		for _, ids := range commands {
			changed, err := s.Operate(h.t.Context(), store.RunCommand{Action: action, Runs: ids, By: "ann", Reason: "why"})
			answer = append(answer, changed, wordOf(err))
		}
		return answer
	})
}

func (h *history) acknowledge() {
	ids := h.some()
	h.each(fmt.Sprint("acknowledge", ids), func(s backend.Store) any {
		changed, err := s.Operate(h.t.Context(), store.RunCommand{Action: store.AcknowledgeRuns, Runs: ids, By: "ann"})
		return []any{changed, wordOf(err)}
	})
}
