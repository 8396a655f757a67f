package durable_test

import (
	"context"
	"encoding/json"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/store"
)

// TestChangingYourCode holds the table of docs/changing-your-code.md: two versions of a
// program on one store, for each row.
func TestChangingYourCode(t *testing.T) {
	for name, row := range map[string]func(*testing.T, *versions){
		"a field is added":                 fieldAdded,
		"a field is removed":               fieldRemoved,
		"a field is renamed":               fieldRenamed,
		"a type is changed":                typeChanged,
		"a type is changed in two steps":   typeChangedInTwoSteps,
		"a job is renamed":                 jobRenamed,
		"a job is removed":                 jobRemoved,
		"a job moves to another queue":     queueChanged,
		"a limit is added":                 limitAdded,
		"a limit admits more":              limitRaised,
		"a schedule is renamed":            scheduleRenamed,
		"a schedule gets another rule":     scheduleChanged,
		"a schedule is removed":            scheduleRemoved,
		"a timeout and attempts change":    policyChanged,
		"a retry policy changes":           retryChanged,
		"the program is rolled back":       rolledBack,
		"a codec is introduced and needed": codecIntroduced,
	} {
		t.Run(name, func(t *testing.T) {
			play(t, func(t *testing.T, s *scene) { row(t, &versions{scene: s, got: map[durable.RunID]string{}}) })
		})
	}
}

// versions are programs of several versions on one store.
type versions struct {
	*scene
	mu  sync.Mutex
	got map[durable.RunID]string // what the handlers saw, by run
}

// start runs a program until the returned function is called.
func (v *versions) start(register func(w *durable.Worker), queues ...string) (stop func()) {
	config := durable.WorkerConfig{}
	for _, queue := range queues {
		config.Queues = append(config.Queues, durable.Queue{Name: queue})
	}
	w := v.worker(config)
	register(w)
	end := v.begin(w)
	return func() { require.NoError(v.t, end()) }
}

// shows registers a job whose handler notes what it sees of its args.
func shows[A any](v *versions, job durable.Job[A], show func(run *durable.Run[A]) string) func(w *durable.Worker) {
	return func(w *durable.Worker) {
		durable.Register(w, job, func(_ context.Context, run *durable.Run[A]) error {
			v.mu.Lock()
			defer v.mu.Unlock()
			v.got[run.ID] = show(run)
			return nil
		})
	}
}

func (v *versions) saw(id durable.RunID) string {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.got[id]
}

// The args of a mail in several versions of a program.
type (
	mail1     struct{ To string }
	mail2     struct{ To, Subject string }   // a field more
	mail3     struct{ Recipient string }     // renamed
	mail4     struct{ To []string }          // another type
	mailBoth  struct{ To, Recipient string } // reads both names
	mailLoose struct{ To oneOrMore }         // reads both types, writes the first
	oneOrMore []string
)

func (m *oneOrMore) UnmarshalJSON(text []byte) error {
	if len(text) > 0 && text[0] == '[' {
		return json.Unmarshal(text, (*[]string)(m))
	}
	*m = make([]string, 1)
	return json.Unmarshal(text, &(*m)[0])
}

func (m oneOrMore) MarshalJSON() ([]byte, error) { return json.Marshal(m[0]) }

func fieldAdded(t *testing.T, v *versions) {
	before, after := durable.NewJob[mail1]("mail"), durable.NewJob[mail2]("mail")
	old, recent := v.enqueue(before.New(mail1{To: "ann"})), v.enqueue(after.New(mail2{To: "bob", Subject: "hi"}))
	stop := v.start(shows(v, before, func(run *durable.Run[mail1]) string { return run.Args.To }))
	v.pass(time.Second)
	require.Equal(t, "bob", v.saw(recent), "the version before does not see the field")
	stop()
	again := v.enqueue(before.New(mail1{To: "cay"}))
	defer v.start(shows(v, after, func(run *durable.Run[mail2]) string { return run.Args.To + "/" + run.Args.Subject }))()
	v.pass(time.Second)
	require.Equal(t, "ann", v.saw(old))
	require.Equal(t, "cay/", v.saw(again), "the field is zero")
}

func fieldRemoved(t *testing.T, v *versions) {
	before, after := durable.NewJob[mail2]("mail"), durable.NewJob[mail1]("mail")
	old := v.enqueue(before.New(mail2{To: "ann", Subject: "hi"}))
	stop := v.start(shows(v, after, func(run *durable.Run[mail1]) string { return run.Args.To }))
	v.pass(time.Second)
	require.Equal(t, "ann", v.saw(old), "the field is ignored")
	stop()
	recent := v.enqueue(after.New(mail1{To: "bob"}))
	defer v.start(shows(v, before, func(run *durable.Run[mail2]) string { return run.Args.To + "/" + run.Args.Subject }))()
	v.pass(time.Second)
	require.Equal(t, "bob/", v.saw(recent), "the version before gets zero")
}

func fieldRenamed(t *testing.T, v *versions) {
	before, after, both := durable.NewJob[mail1]("mail"), durable.NewJob[mail3]("mail"), durable.NewJob[mailBoth]("mail")
	old := v.enqueue(before.New(mail1{To: "ann"}))
	stop := v.start(shows(v, after, func(run *durable.Run[mail3]) string { return "to " + run.Args.Recipient }))
	v.pass(time.Second)
	require.Equal(t, "to ", v.saw(old), "nothing fails: the field is zero")
	stop()
	old, recent := v.enqueue(before.New(mail1{To: "ann"})), v.enqueue(after.New(mail3{Recipient: "bob"}))
	defer v.start(shows(v, both, func(run *durable.Run[mailBoth]) string { return run.Args.To + run.Args.Recipient }))()
	v.pass(time.Second)
	require.Equal(t, []string{"ann", "bob"}, []string{v.saw(old), v.saw(recent)})
}

func typeChanged(t *testing.T, v *versions) {
	before, after := durable.NewJob[mail1]("mail", durable.MaxAttempts(1)), durable.NewJob[mail4]("mail", durable.MaxAttempts(1))
	old, recent := v.enqueue(before.New(mail1{To: "ann"})), v.enqueue(after.New(mail4{To: []string{"bob"}}))
	stop := v.start(shows(v, before, func(run *durable.Run[mail1]) string { return run.Args.To }))
	v.pass(5 * time.Minute)
	require.Equal(t, durable.Succeeded, v.record(old).State)
	require.Equal(t, durable.Pending, v.record(recent).State, "it waits for the next version")
	stop()
	old = v.enqueue(before.New(mail1{To: "ann"}))
	defer v.start(shows(v, after, func(run *durable.Run[mail4]) string { return run.Args.To[0] }))()
	v.pass(20 * time.Minute)
	require.Equal(t, "bob", v.saw(recent))
	require.Equal(t, durable.Dead, v.record(old).State, "no worker of the version before is left")
}

func typeChangedInTwoSteps(t *testing.T, v *versions) {
	before, between, after := durable.NewJob[mail1]("mail"), durable.NewJob[mailLoose]("mail"), durable.NewJob[mail4]("mail")
	ids := []durable.RunID{v.enqueue(before.New(mail1{To: "a"})), v.enqueue(between.New(mailLoose{To: oneOrMore{"b"}})), v.enqueue(after.New(mail4{To: []string{"c"}}))}
	fromFirst := v.enqueue(between.New(mailLoose{To: oneOrMore{"d"}}))
	stop := v.start(shows(v, between, func(run *durable.Run[mailLoose]) string { return run.Args.To[0] }))
	v.pass(time.Second)
	for i, want := range []string{"a", "b", "c"} {
		require.Equal(t, want, v.saw(ids[i]))
	}
	require.Equal(t, "d", v.saw(fromFirst))
	stop()
	recent := v.enqueue(between.New(mailLoose{To: oneOrMore{"e"}}))
	defer v.start(shows(v, before, func(run *durable.Run[mail1]) string { return run.Args.To }))()
	v.pass(time.Second)
	require.Equal(t, "e", v.saw(recent), "the step in between writes what the version before reads")
}

func jobRenamed(t *testing.T, v *versions) {
	before, after := durable.NewJob[mail1]("send-mail"), durable.NewJob[mail1]("mail")
	to := func(run *durable.Run[mail1]) string { return run.Args.To }
	old := v.enqueue(before.New(mail1{To: "ann"}))
	stop := v.start(shows(v, after, to))
	v.pass(time.Minute)
	require.Equal(t, durable.Pending, v.record(old).State, "nobody serves the name before")
	stop()
	defer v.start(shows(v, durable.NewJob[mail1]("mail", durable.Alias("send-mail")), to))()
	v.pass(time.Second)
	require.Equal(t, "ann", v.saw(old))
}

func jobRemoved(t *testing.T, v *versions) {
	old := v.enqueue(durable.NewJob[mail1]("mail").New(mail1{}))
	defer v.start(shows(v, durable.NewJob[mail1]("other"), func(*durable.Run[mail1]) string { return "" }))()
	v.pass(24 * time.Hour)
	require.Equal(t, durable.Pending, v.record(old).State, "it waits, however long")
}

func queueChanged(t *testing.T, v *versions) {
	before, after := durable.NewJob[mail1]("mail"), durable.NewJob[mail1]("mail", durable.OnQueue("mails"))
	to := func(run *durable.Run[mail1]) string { return run.Args.To }
	old, recent := v.enqueue(before.New(mail1{To: "ann"})), v.enqueue(after.New(mail1{To: "bob"}))
	stop := v.start(shows(v, after, to), "mails")
	v.pass(time.Minute)
	require.Equal(t, "bob", v.saw(recent))
	require.Equal(t, durable.Pending, v.record(old).State, "a run stays on the queue that it was enqueued on")
	stop()
	defer v.start(shows(v, after, to), "default", "mails")()
	v.pass(time.Second)
	require.Equal(t, "ann", v.saw(old))
}

// most registers a job that takes a second, and tracks how many execute concurrently.
func most(job durable.Job[mail1], executing, peak *int) func(w *durable.Worker) {
	var mu sync.Mutex
	add := func(n int) {
		mu.Lock()
		defer mu.Unlock()
		*executing += n
		*peak = max(*peak, *executing)
	}
	return func(w *durable.Worker) {
		durable.Register(w, job, func(ctx context.Context, _ *durable.Run[mail1]) error {
			add(1)
			defer add(-1)
			select {
			case <-time.After(time.Second):
			case <-ctx.Done():
			}
			return nil
		})
	}
}

func (v *versions) enqueueMails(job durable.Job[mail1], n int) {
	for range n {
		v.enqueue(job.New(mail1{To: "ann"}))
	}
}

func limitAdded(t *testing.T, v *versions) {
	one := durable.NewLimit("one", durable.Mutex())
	before, after := durable.NewJob[mail1]("mail"), durable.NewJob[mail1]("mail", durable.Limited(one))
	v.enqueueMails(before, 5)
	var executing, peak int
	_, err := v.client.Enqueue(t.Context(), after.New(mail1{}))
	require.ErrorIs(t, err, store.ErrUnknownLimit, "a worker declares the limit first")
	defer v.start(most(after, &executing, &peak))()
	v.pass(10 * time.Second)
	require.Equal(t, 5, peak, "stored runs do not get the limit")
	peak = 0
	v.enqueueMails(after, 5)
	v.pass(10 * time.Second)
	require.Equal(t, 1, peak)
	v.enqueueMails(before, 5)
	v.pass(10 * time.Second)
	require.Equal(t, 5, peak, "nor do those that the version before enqueues")
}

func limitRaised(t *testing.T, v *versions) {
	limited := func(n int) durable.Job[mail1] {
		return durable.NewJob[mail1]("mail", durable.Limited(durable.NewLimit("some", durable.Semaphore(n))))
	}
	var executing, peak int
	stop := v.start(most(limited(1), &executing, &peak))
	v.enqueueMails(limited(1), 30)
	v.pass(3 * time.Second)
	require.Equal(t, 1, peak)
	stopNew := v.start(most(limited(3), &executing, &peak))
	v.pass(3 * time.Second)
	require.Equal(t, 3, peak, "stored runs have it as soon as the first worker of the next version starts")
	stopNew()
	stop()
	peak = 0
	defer v.start(most(limited(1), &executing, &peak))()
	v.pass(3 * time.Second)
	require.Equal(t, 1, peak, "rolled back")
}

func scheduled(name string, rule durable.Rule) func(w *durable.Worker) {
	return func(w *durable.Worker) {
		job := durable.NewJob[mail1]("mail")
		durable.Register(w, job, func(context.Context, *durable.Run[mail1]) error { return nil })
		durable.AddSchedule(w, name, job, mail1{To: name}, rule)
	}
}

// fired counts the runs of each schedule.
func (v *versions) fired() map[string]int {
	page, err := v.store.Runs(v.t.Context(), store.Filter{Limit: store.LargestPage})
	require.NoError(v.t, err)
	by := map[string]int{}
	for i := range page.Runs {
		by[*page.Runs[i].Schedule]++
	}
	return by
}

func scheduleRenamed(t *testing.T, v *versions) {
	v.start(scheduled("before", durable.Every(time.Hour)))()
	defer v.start(scheduled("after", durable.Every(time.Hour)))()
	v.pass(3*time.Hour + time.Minute)
	require.Equal(t, map[string]int{"before": 3, "after": 3}, v.fired(), "both fire")
	all, err := v.store.ListSchedules(t.Context())
	require.NoError(t, err)
	require.True(t, slices.ContainsFunc(all, func(s store.ScheduleRecord) bool { return s.Name == "before" && s.Orphaned }))
	require.NoError(t, v.store.ChangeSchedule(t.Context(), "before", store.DeleteSchedule, "ada"))
	v.pass(2 * time.Hour)
	require.Equal(t, map[string]int{"before": 3, "after": 5}, v.fired())
}

func scheduleChanged(t *testing.T, v *versions) {
	stop := v.start(scheduled("mails", durable.Every(time.Hour)))
	v.pass(time.Minute)
	stopNew := v.start(scheduled("mails", durable.Every(time.Minute)))
	v.pass(10*time.Minute + time.Second)
	require.InDelta(t, 10, v.fired()["mails"], 1, "the next version's rule counts while both work")
	stopNew()
	stop()
	before := v.fired()["mails"]
	defer v.start(scheduled("mails", durable.Every(time.Hour)))()
	v.pass(2*time.Hour + time.Minute)
	require.InDelta(t, before+2, v.fired()["mails"], 1, "rolled back")
}

func scheduleRemoved(t *testing.T, v *versions) {
	v.start(scheduled("mails", durable.Every(time.Hour)))()
	defer v.start(func(w *durable.Worker) {
		durable.Register(w, durable.NewJob[mail1]("mail"), func(context.Context, *durable.Run[mail1]) error { return nil })
	})()
	v.pass(3*time.Hour + time.Minute)
	require.Equal(t, 3, v.fired()["mails"], "it fires until an operator deletes it")
}

func policyChanged(t *testing.T, v *versions) {
	job := func(timeout time.Duration, attempts int) durable.Job[mail1] {
		return durable.NewJob[mail1]("mail", durable.Timeout(timeout), durable.MaxAttempts(attempts))
	}
	old := v.enqueue(job(time.Minute, 3).New(mail1{}))
	defer v.start(shows(v, job(time.Hour, 9), func(run *durable.Run[mail1]) string { return run.Timeout.String() }))()
	recent := v.enqueue(job(time.Hour, 9).New(mail1{}))
	v.pass(time.Second)
	require.Equal(t, []string{"1m0s", "1h0m0s"}, []string{v.saw(old), v.saw(recent)})
	require.Equal(t, []int{3, 9}, []int{v.record(old).MaxAttempts, v.record(recent).MaxAttempts})
}

func retryChanged(t *testing.T, v *versions) {
	old := v.enqueue(durable.NewJob[mail1]("mail", durable.Retry(durable.Fixed(time.Hour))).New(mail1{}))
	defer v.start(func(w *durable.Worker) {
		durable.Register(w, durable.NewJob[mail1]("mail", durable.Retry(durable.Fixed(time.Second))), func(context.Context, *durable.Run[mail1]) error { return errBoom })
	})()
	v.pass(time.Minute)
	require.Equal(t, durable.Dead, v.record(old).State, "the worker that executes the run decides")
}

func rolledBack(t *testing.T, v *versions) {
	before, after := durable.NewJob[mail1]("mail"), durable.NewJob[mail4]("mail")
	stop := v.start(shows(v, after, func(run *durable.Run[mail4]) string { return run.Args.To[0] }))
	v.pass(time.Second)
	recent := v.enqueue(after.New(mail4{To: []string{"bob"}}, durable.After(time.Minute)))
	stop()
	unknown := v.enqueue(durable.NewJob[mail1]("fax").New(mail1{}))
	defer v.start(shows(v, before, func(run *durable.Run[mail1]) string { return run.Args.To }))()
	v.pass(10 * time.Minute)
	require.Equal(t, durable.Pending, v.record(recent).State, "15 minutes to deploy again")
	require.Equal(t, durable.Pending, v.record(unknown).State, "a job that only the next version has waits")
	v.pass(10 * time.Minute)
	require.Equal(t, durable.Dead, v.record(recent).State)
	require.Equal(t, durable.Pending, v.record(unknown).State)
}

func codecIntroduced(t *testing.T, v *versions) {
	before, after := durable.NewJob[letter]("mail"), durable.NewJob[letter]("mail", durable.WithCodec(newSealing()))
	recent := v.enqueue(after.New(letter{To: "bob"}))
	stop := v.start(shows(v, before, func(run *durable.Run[letter]) string { return "to " + run.Args.To }))
	v.pass(time.Second)
	require.Equal(t, "to ", v.saw(recent), "a version without the codec sees an empty letter")
	stop()
	recent = v.enqueue(after.New(letter{To: "bob"}))
	defer v.start(shows(v, after, func(run *durable.Run[letter]) string { return "to " + run.Args.To }))()
	v.pass(time.Second)
	require.Equal(t, "to bob", v.saw(recent))
}
