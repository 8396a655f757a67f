package storetest

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/durable-worker/durable-worker/store"
)

func countTests() map[string]func(*testing.T, *fixture) {
	return map[string]func(*testing.T, *fixture){
		"a few succeeded runs beside very many pending ones are counted exactly":       fewAmongMany,
		"runs that pass a filter are counted by state":                                 countMatching,
		"a queue says when it has more runs than were counted":                         queueAtLeast,
		"key, schedule, worker, error, args, metadata and end narrow lists and counts": filterSelects,
	}
}

// manyPending is more than stores count one by one in a table of any size.
const manyPending = 101_000

func (f *fixture) enqueueMany(n int) {
	f.t.Helper()
	const step = 10_000
	for left := n; left > 0; left -= step {
		f.enqueue(newRuns(min(step, left))...)
	}
}

func fewAmongMany(t *testing.T, f *fixture) {
	f.enqueueMany(manyPending)
	worker := newWorker("w1")
	claim, claimed := f.claim(worker, 119)
	f.settle(all(claim, worker, claimed, success()))
	counts, err := f.store.Counts(f.ctx)
	if err != nil {
		t.Fatalf("Counts: %v", err)
	}
	want := map[store.State]store.Count{
		store.Pending: {N: manyPending - 119}, store.Running: {}, store.Succeeded: {N: 119}, store.Dead: {}, store.Cancelled: {},
	}
	for state, count := range want {
		if counts[state] != count {
			t.Errorf("%v: %+v, want %+v", state, counts[state], count)
		}
	}
}

// queueAtLeast allows a store to count all runs of a queue, or to say that it
// has not.
func queueAtLeast(t *testing.T, f *fixture) {
	f.enqueueMany(manyPending)
	pending, _ := f.waiting(store.DefaultQueue)
	if pending.Estimated || pending.AtLeast == (pending.N == manyPending) || pending.N < 10_000 || pending.N > manyPending {
		t.Errorf("%+v of %d runs: want all, or a lower bound of at least 10000 that says so", pending, manyPending)
	}
}

func countMatching(t *testing.T, f *fixture) {
	f.enqueue(newRuns(7, func(r *store.NewRun) { r.Queue, r.Tags = "bulk", []string{"red"} })...)
	f.enqueue(newRuns(12)...)
	worker := newWorker("w1")
	claim, claimed := f.claim(worker, 10)
	settlement := store.Settlement{Claim: claim, Worker: worker}
	for i, outcome := range append(outcomes(), outcomes()...) {
		if i < 8 {
			settlement.Runs = append(settlement.Runs, store.Settled{ID: claimed[i].ID, Outcome: outcome})
		}
	}
	f.settle(settlement)
	for _, test := range []struct {
		filter store.Filter
		states []store.State
	}{
		{store.Filter{}, store.States()},
		{store.Filter{Queues: []string{"bulk"}}, store.States()},
		{store.Filter{Tag: "red"}, store.States()},
		{store.Filter{Queues: []string{store.DefaultQueue}, States: []store.State{store.Running, store.Dead}}, []store.State{store.Running, store.Dead}},
		{store.Filter{Jobs: []string{"none"}}, store.States()},
		{store.Filter{IDs: []store.RunID{claimed[0].ID, claimed[9].ID}}, store.States()},
		{store.Filter{Since: time.Now().Add(time.Hour)}, store.States()},
	} {
		want := map[store.State]store.Count{}
		for _, state := range test.states {
			only := test.filter
			only.States = []store.State{state}
			ids, _ := f.pages(only)
			want[state] = store.Count{N: int64(len(ids))}
		}
		// A cursor and a limit have no effect.
		test.filter.Before, test.filter.Limit = claimed[3].ID, 1
		counts, err := f.store.CountMatching(f.ctx, test.filter)
		if err != nil || !maps.Equal(counts, want) {
			t.Errorf("filter %+v: %v, %v, want %v", test.filter, counts, err, want)
		}
	}
	countsLimited(t, f)
	if _, err := f.store.CountMatching(f.ctx, store.Filter{IDs: []store.RunID{}}); !errors.Is(err, store.ErrInvalid) {
		t.Errorf("an empty choice of ids: %v, want ErrInvalid", err)
	}
}

// countsLimited counts pending runs that wait in the lines of limits.
func countsLimited(t *testing.T, f *fixture) {
	f.declareLimits(store.Limit{Name: "api", Kind: store.LimitSemaphore, Max: 1})
	f.enqueue(newRuns(3, limited("api"), func(r *store.NewRun) { r.Queue = "limited" })...)
	counts, err := f.store.CountMatching(f.ctx, store.Filter{Queues: []string{"limited"}})
	if err != nil || counts[store.Pending].N != 3 {
		t.Errorf("limited runs: %v, %v, want 3 pending", counts, err)
	}
}

// filterSelects narrows lists and counts by each condition beside a run's place, alone
// and together, in every combination of states.
func filterSelects(t *testing.T, f *fixture) {
	deploy := mixedRuns(t, f)
	records := map[store.RunID]store.Record{}
	all, _ := f.pages(store.Filter{Limit: 200})
	for _, id := range all {
		records[id] = f.record(id)
	}
	filters := []store.Filter{
		{Key: "key-4"}, {Key: "key"}, {Schedule: "nightly"}, {Schedule: "night"}, {Worker: "early"}, {Worker: "late"}, {Worker: "w"},
		{Error: "boom"}, {Error: "50% of \\_"}, {Error: "BOOM"}, {Error: "%"}, {EndedSince: deploy}, {EndedSince: deploy.Add(time.Hour)},
		{Metadata: store.Metadata{"tenant": "acme"}}, {Metadata: store.Metadata{"tenant": `a"b`}}, {Metadata: store.Metadata{"tenant": "acme", "n": "1"}},
		{Metadata: store.Metadata{"none": ""}}, {Schedule: "nightly", Metadata: store.Metadata{"tenant": "acme"}}, {Key: "key-0", Worker: "early"},
		{Worker: "early", Error: "boom", EndedSince: time.Unix(1, 0)}, {Key: "key-0", Schedule: "nightly"},
		{Args: "user3@"}, {Args: "USER3@"}, {Args: "%"}, {Args: "a&b"}, {Args: "user3@", Metadata: store.Metadata{"tenant": "acme"}},
	}
	for _, states := range [][]store.State{nil, {store.Pending}, {store.Running}, {store.Dead}, {store.Dead, store.Cancelled}, {store.Pending, store.Running}, {store.Succeeded}} {
		for _, filter := range filters {
			filter.States, filter.Limit = states, 3
			var want []store.RunID
			for _, id := range all {
				if r := records[id]; selects(filter, r) {
					want = append(want, id)
				}
			}
			if got, _ := f.pages(filter); !slices.Equal(got, want) {
				t.Errorf("filter %+v: %d runs, want %d", filter, len(got), len(want))
			}
			named := filter
			if named.IDs = all; len(all) > store.LargestPage {
				t.Fatalf("%d runs, want no more than a filter may name", len(all))
			}
			if got, _ := f.pages(named); !slices.Equal(got, want) {
				t.Errorf("filter %+v, of all runs by their ids: %d runs, want %d", filter, len(got), len(want))
			}
			counts, err := f.store.CountMatching(f.ctx, filter)
			n := int64(0)
			for state, count := range counts {
				n += count.N
				if len(states) > 0 && !slices.Contains(states, state) {
					t.Errorf("filter %+v: counted %v", filter, counts)
				}
			}
			if err != nil || n != int64(len(want)) {
				t.Errorf("filter %+v: counted %v, %v, want %d in all", filter, counts, err, len(want))
			}
		}
	}
	if got, _ := f.pages(store.Filter{Args: "a&b"}); len(got) == 0 {
		t.Error("a text that encoding/json escapes is not found in args")
	}
	for _, bad := range []store.Filter{{Key: "a\x00"}, {Args: "a\x00"}, {Error: "\xff"}, {Metadata: store.Metadata{"": "x"}}, {EndedSince: time.Date(1, 2, 3, 4, 5, 6, 7, time.UTC)}} {
		if _, err := f.store.Runs(f.ctx, bad); !errors.Is(err, store.ErrInvalid) {
			t.Errorf("filter %+v: %v, want ErrInvalid", bad, err)
		}
	}
}

// mixedRuns makes runs of many kinds, and returns an instant between the ends of some
// and those of others.
func mixedRuns(t *testing.T, f *fixture) (deploy time.Time) {
	schedule := newSchedule("nightly")
	schedule.Metadata = store.Metadata{"tenant": "acme"}
	f.declare(schedule)
	f.declareLimits(store.Limit{Name: "api", Kind: store.LimitSemaphore, Max: 1})
	for i := range 24 {
		f.enqueue(newRun(func(r *store.NewRun) {
			r.Args = fmt.Appendf(nil, `{"user":"user%d@example","text":"a\u0026b"}`, i%5)
			r.Metadata = store.Metadata{"tenant": []string{"acme", "zeta", `a"b`}[i%3], "n": strconv.Itoa(i % 2)}
			if i%4 == 0 {
				r.Key = unique(fmt.Sprint("key-", i%8))
			}
			if i >= 8 && i%4 == 0 {
				r.Job = fmt.Sprint("job-", i) // a key belongs to its job
			}
			if i == 22 {
				limited("api")(r)
			}
		}))
	}
	for range 4 {
		if err := f.store.RunSchedule(f.ctx, "nightly", store.NewRunID(), store.OverlapAllow, "ann"); err != nil {
			t.Fatalf("RunSchedule: %v", err)
		}
	}
	early := newWorker("early")
	claim, claimed := f.claim(early, 10)
	settlement := store.Settlement{Claim: claim, Worker: early}
	for i, outcome := range append(outcomes(), outcomes()...)[:8] {
		if outcome.Kind != store.Success {
			outcome.Error = fmt.Sprintf("boom %d: 50%% of \\_", i)
		}
		settlement.Runs = append(settlement.Runs, store.Settled{ID: claimed[i].ID, Outcome: outcome})
	}
	f.settle(settlement)
	f.advance(time.Hour)
	deploy = f.now()
	f.advance(time.Second)
	late := newWorker("late")
	claim, claimed = f.claim(late, 8)
	settlement = store.Settlement{Claim: claim, Worker: late}
	for i, outcome := range outcomes()[:4] {
		settlement.Runs = append(settlement.Runs, store.Settled{ID: claimed[i].ID, Outcome: outcome})
	}
	f.settle(settlement)
	return deploy
}

// selects says by a record whether a run passes a filter.
func selects(filter store.Filter, r store.Record) bool {
	text := func(p *string) string {
		if p == nil {
			return ""
		}
		return *p
	}
	for name, value := range filter.Metadata {
		if got, has := r.Metadata[name]; !has || got != value {
			return false
		}
	}
	spellings := filter.ArgsSpellings()
	if spellings != nil && !slices.ContainsFunc(spellings, func(text string) bool { return strings.Contains(string(r.Args), text) }) {
		return false
	}
	return (len(filter.States) == 0 || slices.Contains(filter.States, r.State)) && (filter.Key == "" || text(r.Key) == filter.Key) &&
		(filter.Schedule == "" || text(r.Schedule) == filter.Schedule) && (filter.Worker == "" || text(r.Worker) == filter.Worker) &&
		strings.Contains(text(r.Error), filter.Error) && (filter.EndedSince.IsZero() || r.FinishedAt != nil && !r.FinishedAt.Before(filter.EndedSince))
}
