package storetest

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/store"
)

func queueTests() map[string]func(*testing.T, *fixture) {
	return map[string]func(*testing.T, *fixture){
		"nothing is claimed from a paused queue until it is resumed": pauseQueue,
		"a queue that is not used yet can be paused":                 pauseUnused,
		"queues are listed by name with what waits in them":          listQueues,
		"an enqueue that is refused makes no queue known":            queueOfRefused,
		"a change of a queue that makes no sense is refused":         queueRefused,
		"lists narrow by tag and by the time of making":              filterMore,
	}
}

func (f *fixture) setQueue(name string, action store.QueueAction) {
	f.t.Helper()
	if err := f.store.SetQueue(f.ctx, name, action, "ann"); err != nil {
		f.t.Fatalf("SetQueue: %v", err)
	}
}

// waiting is how many runs are pending on a queue, and when the first of them is due.
func (f *fixture) waiting(queue string) (pending store.Count, oldest *time.Time) {
	f.t.Helper()
	survey := f.survey()
	for i := range survey.Lanes {
		lane := &survey.Lanes[i]
		if lane.Queue != queue {
			continue
		}
		pending = pending.Plus(lane.Pending)
		if lane.OldestDue != nil && (oldest == nil || lane.OldestDue.Before(*oldest)) {
			oldest = lane.OldestDue
		}
	}
	return pending, oldest
}

func (f *fixture) queues() []store.QueueInfo {
	f.t.Helper()
	queues, err := f.store.Queues(f.ctx)
	if err != nil {
		f.t.Fatalf("Queues: %v", err)
	}
	return queues
}

// queueOfRefused enqueues in every way runs on new queues whose limit is not known.
func queueOfRefused(t *testing.T, f *fixture) {
	f.enqueue(newRun())
	claim, held := f.claimOne(newWorker("w"))
	bad := func(queue string) store.NewRun {
		return newRun(limited("none"), func(r *store.NewRun) { r.Queue = queue })
	}
	for queue, enqueue := range map[string]func(store.NewRun) error{
		"plain": func(run store.NewRun) error { _, err := f.store.Enqueue(f.ctx, newRun(), run); return err },
		"keyed": func(run store.NewRun) error {
			run.Key = unique("k")
			_, err := f.store.Enqueue(f.ctx, run)
			return err
		},
		"under": func(run store.NewRun) error {
			_, err := f.store.EnqueueUnder(f.ctx, store.Holder{Run: held.ID, Claim: claim}, run)
			return err
		},
		"rerun": func(run store.NewRun) error { _, err := f.store.Rerun(f.ctx, held.ID, run, "ann"); return err },
	} {
		if err := enqueue(bad(queue)); !errors.Is(err, store.ErrInvalid) {
			t.Errorf("%s: %v, want ErrInvalid", queue, err)
		}
	}
	if queues, lanes := f.queues(), f.survey().Lanes; len(queues) != 1 || len(lanes) != 1 {
		t.Errorf("queues %+v and lanes %+v, want those of the first run", queues, lanes)
	}
}

// claimEvery claims with steps for all lanes, whatever the heads say of them.
func (f *fixture) claimEvery(lanes ...store.LaneID) []store.ClaimedRun {
	f.t.Helper()
	request := store.ClaimRequest{Claim: lease.NewClaimID(), Worker: newWorker("w"), Duration: time.Minute, Limit: 100}
	for _, lane := range lanes {
		request.Steps = append(request.Steps, store.Step{Lane: lane, Take: 100})
	}
	claimed, err := f.store.Claim(f.ctx, request)
	if err != nil {
		f.t.Fatalf("Claim: %v", err)
	}
	return claimed
}

func pauseQueue(t *testing.T, f *fixture) {
	f.enqueue(newRuns(2)...)
	serves := store.Serves{Queues: []string{store.DefaultQueue}, Jobs: []string{"mail", "later"}}
	heads, err := f.store.Heads(f.ctx, serves)
	if err != nil || len(heads) != 1 {
		t.Fatalf("%v, %v", heads, err)
	}
	for range 2 {
		f.setQueue(store.DefaultQueue, store.PauseQueue)
	}
	f.enqueue(newRun(), newRun(func(r *store.NewRun) { r.Job = "later" })) // a lane that is new
	if paused, err := f.store.Heads(f.ctx, serves); err != nil || len(paused) != 0 {
		t.Errorf("heads %+v, %v", paused, err)
	}
	if claimed := f.claimEvery(heads[0].Lane, heads[0].Lane+1); len(claimed) != 0 {
		t.Errorf("claimed %+v", claimed)
	}
	for range 2 {
		f.setQueue(store.DefaultQueue, store.ResumeQueue)
	}
	if resumed, err := f.store.Heads(f.ctx, serves); err != nil || len(resumed) != 2 {
		t.Errorf("heads %+v, %v", resumed, err)
	}
	if claimed := f.claimEvery(heads[0].Lane); len(claimed) != 3 {
		t.Errorf("claimed %+v", claimed)
	}
	var actions []string
	for _, c := range f.changes(store.ChangeFilter{Kind: "queue", Subject: store.DefaultQueue}) {
		actions = append(actions, c.Action)
	}
	if !slices.Equal(actions, []string{"resume", "pause"}) {
		t.Errorf("audited %v", actions)
	}
}

func pauseUnused(t *testing.T, f *fixture) {
	f.setQueue("slow", store.PauseQueue)
	f.enqueue(newRun(func(r *store.NewRun) { r.Queue = "slow" }))
	if heads, err := f.store.Heads(f.ctx, store.Serves{Queues: []string{"slow"}, Jobs: []string{"mail"}}); err != nil || len(heads) != 0 {
		t.Errorf("heads %+v, %v", heads, err)
	}
	if queues := f.queues(); len(queues) != 1 || !queues[0].Paused {
		t.Errorf("queues %+v", queues)
	}
}

func listQueues(t *testing.T, f *fixture) {
	if queues := f.queues(); len(queues) != 0 {
		t.Errorf("queues %+v", queues)
	}
	f.isolate(newRun())
	f.enqueue(newRun(func(r *store.NewRun) { r.Queue, r.Priority = "slow", 1 }))
	f.enqueue(newRun(func(r *store.NewRun) { r.Queue, r.Job = "slow", "report" }))
	f.enqueue(newRun(func(r *store.NewRun) { r.Queue, r.After = "later", time.Hour }))
	f.setQueue("empty", store.PauseQueue)
	f.setQueue("slow", store.PauseQueue)
	queues := f.queues()
	want := []store.QueueInfo{{Name: "default"}, {Name: "empty", Paused: true}, {Name: "later"}, {Name: "slow", Paused: true}}
	if !slices.Equal(queues, want) {
		t.Errorf("queues %+v, want %+v", queues, want)
	}
	for name, pending := range map[string]int64{"default": 1, "empty": 0, "later": 1, "slow": 2} {
		count, oldest := f.waiting(name)
		if count != (store.Count{N: pending}) || (oldest == nil) != (pending == 0) {
			t.Errorf("on queue %s %+v wait, the oldest since %v, want %d", name, count, oldest, pending)
		}
		if name == "later" && oldest.Sub(f.now()) < 59*time.Minute {
			t.Errorf("on queue %s the oldest is due at %v", name, oldest)
		}
	}
	if len(queues) != 4 {
		t.Errorf("queues %+v", queues)
	}
}

func queueRefused(t *testing.T, f *fixture) {
	for i, ask := range [][3]string{{"", "pause", "ann"}, {"a b", "pause", "ann"}, {"slow", "stop", "ann"}, {"slow", "", "ann"}, {"slow", "pause", ""}} {
		if err := f.store.SetQueue(f.ctx, ask[0], store.QueueAction(ask[1]), ask[2]); !errors.Is(err, store.ErrInvalid) {
			t.Errorf("%d: %v, want ErrInvalid", i, err)
		}
	}
	if queues := f.queues(); len(queues) != 0 {
		t.Errorf("queues %+v", queues)
	}
}

func filterMore(t *testing.T, f *fixture) {
	runs := make([]store.NewRun, 40)
	base := time.UnixMilli(time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC).UnixMilli())
	for i := range runs {
		runs[i] = newRun(func(r *store.NewRun) {
			at := base.Add(time.Duration(i) * time.Second).UnixMilli()
			for b := range 6 {
				r.ID[b] = byte(at >> (40 - 8*b))
			}
			if i%4 == 0 {
				r.Tags = []string{"red", `a"b`}
			}
		})
	}
	f.enqueue(runs...)
	f.operate(store.CancelRuns, runs[0].ID, runs[1].ID, runs[8].ID)
	worker := newWorker("w1")
	f.claim(worker, 10)
	for _, state := range [][]store.State{nil, {store.Pending}, {store.Cancelled}, {store.Running}, {store.Pending, store.Running}, store.States()} {
		for _, filter := range []store.Filter{{Tag: "red"}, {Tag: `a"b`}, {Tag: "re"}, {Since: base.Add(10 * time.Second)}, {Until: base.Add(10 * time.Second)},
			{Since: base.Add(3 * time.Second), Until: base.Add(30 * time.Second), Tag: "red"}, {Since: base.Add(time.Hour)}, {Until: base, Since: base}} {
			var want []store.RunID
			for i, run := range slices.Backward(runs) {
				at := base.Add(time.Duration(i) * time.Second)
				if (filter.Tag == "" || slices.Contains(run.Tags, filter.Tag)) && (filter.Since.IsZero() || !at.Before(filter.Since)) &&
					(filter.Until.IsZero() || at.Before(filter.Until)) && (state == nil || slices.Contains(state, f.record(run.ID).State)) {
					want = append(want, run.ID)
				}
			}
			filter.States, filter.Limit = state, 4
			if got, _ := f.pages(filter); !slices.Equal(got, want) {
				t.Errorf("filter %+v: %d runs, want %d", filter, len(got), len(want))
			}
		}
	}
	if _, err := f.store.Runs(f.ctx, store.Filter{Since: time.Date(1, 2, 3, 4, 5, 6, 7, time.UTC)}); !errors.Is(err, store.ErrInvalid) {
		t.Errorf("a year below 1970: %v", err)
	}
}
