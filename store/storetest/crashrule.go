package storetest

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/store"
)

// crashTable is what becomes of a run whose worker is gone: when its lease has
// expired, by how many crashes it then has, and when its lease has gone, which
// counts none. A run whose policy is dead comes to no second crash.
const crashTable = `
policy cancel alone most  1         2         3         4          gone
retry  no     no    2     pending   pending   pending   pending    pending
retry  no     no    100   pending   pending   pending   pending    pending
retry  no     yes   2     pending   dead      dead      dead       pending
retry  no     yes   100   pending   pending   pending   pending    pending
retry  yes    no    2     cancelled cancelled cancelled cancelled  cancelled
retry  yes    no    100   cancelled cancelled cancelled cancelled  cancelled
retry  yes    yes   2     cancelled dead      dead      dead       cancelled
retry  yes    yes   100   cancelled cancelled cancelled cancelled  cancelled
dead   no     no    2     dead      -         -         -          dead
dead   no     no    100   dead      -         -         -          dead
dead   no     yes   2     dead      -         -         -          dead
dead   no     yes   100   dead      -         -         -          dead
dead   yes    no    2     dead      -         -         -          dead
dead   yes    no    100   dead      -         -         -          dead
dead   yes    yes   2     dead      -         -         -          dead
dead   yes    yes   100   dead      -         -         -          dead
`

// crashCase is a cell of the table.
type crashCase struct {
	policy    store.CrashPolicy
	cancel    bool // it was asked to be cancelled
	alone     bool // it was executed alone
	most      int  // MaxCrashes
	crashes   int  // before this one
	reclaimed store.State
	gone      store.State
}

func (c crashCase) String() string {
	return fmt.Sprintf("cancel %v, policy %v, %d crashes before, alone %v, max crashes %d", c.cancel, c.policy, c.crashes, c.alone, c.most)
}

// rows reads a table of the suite: its rows, each by the head's words.
func rows(t *testing.T, table string) (rows []map[string]string) {
	t.Helper()
	lines := strings.Split(strings.TrimSpace(table), "\n")
	head := strings.Fields(lines[0])
	for _, line := range lines[1:] {
		row, words := map[string]string{}, strings.Fields(line)
		if len(words) != len(head) {
			t.Fatalf("the row %q has %d words, want %d", line, len(words), len(head))
		}
		for i, word := range words {
			row[head[i]] = word
		}
		rows = append(rows, row)
	}
	return rows
}

// stateOf reads a state's word.
func stateOf(t *testing.T, word string) store.State {
	t.Helper()
	state, err := store.ParseState(word)
	if err != nil {
		t.Fatal(err)
	}
	return state
}

func crashCases(t *testing.T) (cases []crashCase) {
	t.Helper()
	for _, row := range rows(t, crashTable) {
		c := crashCase{cancel: row["cancel"] == "yes", alone: row["alone"] == "yes", gone: stateOf(t, row["gone"])}
		if err := c.policy.UnmarshalText([]byte(row["policy"])); err != nil {
			t.Fatal(err)
		}
		c.most, _ = strconv.Atoi(row["most"])
		for n := 1; n <= 4 && row[strconv.Itoa(n)] != "-"; n++ {
			c.crashes, c.reclaimed = n-1, stateOf(t, row[strconv.Itoa(n)])
			cases = append(cases, c)
		}
	}
	return cases
}

// reason is the one that is stored with a run that has ended so, after so many
// crashes; fate is why its policy ended it.
func (c crashCase) reason(state store.State, fate string, crashes int) string {
	switch {
	case state == store.Cancelled:
		return reason
	case state == store.Dead && c.policy == store.CrashRetry:
		return fmt.Sprintf("crashed its worker %d times, the last time while it was executed alone", crashes)
	case state == store.Dead:
		return fate + ", and its crash policy is dead"
	case crashes > 0:
		return fmt.Sprintf("the lease of worker w1 expired (crash %d)", crashes)
	default:
		return ""
	}
}

// arrange brings a run to where its worker is gone.
func (f *fixture) arrange(c crashCase) (request store.ClaimRequest, id store.RunID) {
	f.t.Helper()
	run := newRun(func(r *store.NewRun) { r.OnCrash = c.policy })
	f.enqueue(run)
	for range c.crashes {
		f.claimLine(run.ID, func(*store.ClaimRequest) {})
		f.advance(31 * time.Second)
		if _, err := f.store.Reclaim(f.ctx, store.ReclaimRequest{MaxCrashes: 100, Limit: 100}); err != nil {
			f.t.Fatalf("Reclaim: %v", err)
		}
	}
	request = f.claimLine(run.ID, func(r *store.ClaimRequest) { r.Alone = c.alone })
	if c.cancel {
		f.operate(store.CancelRuns, run.ID)
	}
	return request, run.ID
}

// claimLine claims the only waiting run, from whatever line it waits in.
func (f *fixture) claimLine(id store.RunID, change func(*store.ClaimRequest)) store.ClaimRequest {
	f.t.Helper()
	heads, err := f.store.Heads(f.ctx, store.Serves{Queues: []string{store.DefaultQueue}, Jobs: []string{"mail"}})
	if err != nil {
		f.t.Fatalf("Heads: %v", err)
	}
	request := store.ClaimRequest{Claim: lease.NewClaimID(), Worker: newWorker("w1"), Duration: 30 * time.Second, Limit: 1}
	for _, head := range heads {
		request.Steps = append(request.Steps, store.Step{Lane: head.Lane, Take: 1})
	}
	change(&request)
	claimed, err := f.store.Claim(f.ctx, request)
	if err != nil || len(claimed) != 1 || claimed[0].ID != id {
		f.t.Fatalf("claimed %+v, %v, want run %s", claimed, err, id)
	}
	return request
}

func crashRuleOfReclaim(t *testing.T, f *fixture) {
	for _, c := range crashCases(t) {
		_, id := f.arrange(c)
		f.advance(31 * time.Second)
		done, err := f.store.Reclaim(f.ctx, store.ReclaimRequest{MaxCrashes: c.most, Limit: 100})
		if err != nil || len(done.Runs) != 1 || done.Runs[0].ID != id {
			t.Fatalf("%v: reclaimed %+v, %v", c, done, err)
		}
		if run := done.Runs[0]; run.State != c.reclaimed || run.CrashCount != c.crashes+1 || (run.Lane < 0) != (c.crashes > 0) {
			t.Errorf("%v: %+v, want it %v", c, run, c.reclaimed)
		}
		f.wantEnded(c.String(), id, c.reclaimed, c.reason(c.reclaimed, "its worker crashed", c.crashes+1))
	}
}

func crashRuleOfSweep(t *testing.T, f *fixture) {
	for _, c := range crashCases(t) {
		request, id := f.arrange(c)
		f.loseLease(request)
		f.advance(store.SweepPassEvery)
		swept := f.sweep(store.SweepRequest{By: uuid.New(), Limit: 100})
		if len(swept.Returned) != 1 || swept.Returned[0].ID != id {
			t.Fatalf("%v: swept %+v", c, swept)
		}
		if run := swept.Returned[0]; run.State != c.gone || run.CrashCount != c.crashes {
			t.Errorf("%v: %+v, want it %v", c, run, c.gone)
		}
		f.wantEnded(c.String(), id, c.gone, c.reason(c.gone, "its lease is missing", c.crashes))
	}
}

// wantEnded checks the record of a run, and ends it if it is pending, so that
// it is in no one's way.
func (f *fixture) wantEnded(what string, id store.RunID, state store.State, why string) {
	f.t.Helper()
	record := f.record(id)
	if record.State != state || (record.FinishedAt != nil) != state.Terminal() || text(record.Error) != why {
		f.t.Errorf("%s: the record is %v, finished %v, %q; want it %v, %q", what, record.State, record.FinishedAt, text(record.Error), state, why)
	}
	if !state.Terminal() {
		f.operate(store.CancelRuns, id)
	}
}

// loseLease ends the lease of a claim whose run continues: by a settlement that
// says it is the claim's last, and has no runs.
func (f *fixture) loseLease(request store.ClaimRequest) {
	f.t.Helper()
	f.settle(store.Settlement{Claim: request.Claim, Worker: request.Worker, Last: true})
}

// reclaimParts takes the runs of large leases a few at a time.
func reclaimParts(t *testing.T, f *fixture) {
	f.enqueue(newRuns(50)...)
	f.claim(newWorker("w1"), 30)
	f.claim(newWorker("w2"), 20)
	f.advance(31 * time.Second)
	taken := map[store.RunID]int{}
	for step := 0; ; step++ {
		done, err := f.store.Reclaim(f.ctx, store.ReclaimRequest{MaxCrashes: 4, Limit: 10, Runs: 7})
		if err != nil || len(done.Runs) > 7 || len(done.SetAside) > 0 || !done.Soon && len(done.Runs) > 0 {
			t.Fatalf("step %d: %+v, %v", step, done, err)
		}
		if len(done.Runs) == 0 {
			break
		}
		for _, run := range done.Runs {
			taken[run.ID] = run.CrashCount
		}
	}
	if len(taken) != 50 {
		t.Errorf("%d runs were taken, want 50", len(taken))
	}
	for id, crashes := range taken {
		if record := f.record(id); record.State != store.Pending || record.CrashCount != 1 || crashes != 1 {
			t.Errorf("the run is %+v", record)
		}
	}
	if _, claimed := f.claim(newWorker("w3"), 100); len(claimed) != 50 {
		t.Errorf("%d runs can be claimed then, want 50", len(claimed))
	}
}

// reclaimOfNoLease reclaims with a limit of zero.
func reclaimOfNoLease(t *testing.T, f *fixture) {
	soon := func(ahead time.Duration) bool {
		done, err := f.store.Reclaim(f.ctx, store.ReclaimRequest{MaxCrashes: 4, Ahead: ahead})
		if err != nil || done.Now.IsZero() || done.Leases > 0 || len(done.Runs) > 0 {
			t.Fatalf("%+v, %v", done, err)
		}
		return done.Soon
	}
	if soon(time.Hour) {
		t.Error("nothing is leased")
	}
	f.enqueue(newRun())
	f.claimOne(newWorker("w1"))
	if soon(0) || soon(20*time.Second) || !soon(31*time.Second) {
		t.Error("the lease expires in 30 s")
	}
	f.advance(15 * time.Second)
	if soon(0) || !soon(20*time.Second) {
		t.Error("the lease expires in 15 s")
	}
	f.advance(16 * time.Second)
	if !soon(0) {
		t.Error("the lease has expired")
	}
	if done := f.reclaim(); len(done.Runs) != 1 || !done.Soon {
		t.Errorf("%+v", done)
	}
	if soon(time.Hour) {
		t.Error("nothing is leased any more")
	}
}

// touchWorker writes the row of a worker that is known, and of one that is not.
func touchWorker(t *testing.T, f *fixture) {
	known := newWorker("w1")
	if err := f.store.Declare(f.ctx, store.Declaration{Worker: known}); err != nil {
		t.Fatal(err)
	}
	for _, worker := range []store.WorkerID{known, known, newWorker("w2")} {
		if err := f.store.Touch(f.ctx, worker); err != nil {
			t.Errorf("Touch: %v", err)
		}
	}
	f.enqueue(newRun())
	if _, run := f.claimOne(known); run.Attempt != 1 {
		t.Errorf("claimed %+v", run)
	}
}
