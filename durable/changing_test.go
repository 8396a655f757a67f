package durable_test

import (
	"context"
	"encoding/json"
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
		"a limit is removed":               limitRemoved,
		"a schedule is renamed":            scheduleRenamed,
		"a schedule gets another rule":     scheduleChanged,
		"a schedule gets other args":       scheduleArgsChanged,
		"a schedule is removed":            scheduleRemoved,
		"options of a job's runs change":   policyChanged,
		"a retry policy changes":           retryChanged,
		"a time for args changes":          argsTimeChanged,
		"a retention changes":              retentionChanged,
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

func policyChanged(t *testing.T, v *versions) {
	before := durable.NewJob[mail1]("mail", durable.Timeout(time.Minute), durable.MaxAttempts(3), durable.Priority(1))
	after := durable.NewJob[mail1]("mail", durable.Timeout(time.Hour), durable.MaxAttempts(9), durable.Priority(2))
	old := v.enqueue(before.New(mail1{}))
	defer v.start(shows(v, after, func(run *durable.Run[mail1]) string { return run.Timeout.String() }))()
	recent := v.enqueue(after.New(mail1{}))
	v.pass(time.Second)
	require.Equal(t, []string{"1m0s", "1h0m0s"}, []string{v.saw(old), v.saw(recent)})
	a, b := v.record(old), v.record(recent)
	require.Equal(t, []int{3, 9}, []int{a.MaxAttempts, b.MaxAttempts})
	require.Equal(t, []int{1, 2}, []int{a.Priority, b.Priority})
}

func retryChanged(t *testing.T, v *versions) {
	old := v.enqueue(durable.NewJob[mail1]("mail", durable.Retry(durable.Fixed(time.Hour))).New(mail1{}))
	defer v.start(func(w *durable.Worker) {
		durable.Register(w, durable.NewJob[mail1]("mail", durable.Retry(durable.Fixed(time.Second))), func(context.Context, *durable.Run[mail1]) error { return errBoom })
	})()
	v.pass(time.Minute)
	require.Equal(t, durable.Dead, v.record(old).State, "the worker that executes the run decides")
}

func argsTimeChanged(t *testing.T, v *versions) {
	before, after := durable.NewJob[mail1]("mail"), durable.NewJob[mail4]("mail", durable.RetryArgsFor(time.Hour))
	old := v.enqueue(before.New(mail1{}))
	stop := v.start(shows(v, after, func(*durable.Run[mail4]) string { return "" }))
	v.pass(30 * time.Minute)
	require.Equal(t, durable.Pending, v.record(old).State)
	stop()
	defer v.start(shows(v, durable.NewJob[mail4]("mail", durable.DeadOnMisfit()), func(*durable.Run[mail4]) string { return "" }))()
	v.pass(5 * time.Minute)
	require.Equal(t, durable.Dead, v.record(old).State, "the worker that executes the run decides")
}

func retentionChanged(t *testing.T, v *versions) {
	job := func(d time.Duration) func(w *durable.Worker) {
		return shows(v, durable.NewJob[mail1]("mail", durable.Retention(d)), func(*durable.Run[mail1]) string { return "" })
	}
	old := v.enqueue(durable.NewJob[mail1]("mail").New(mail1{}))
	stop := v.start(job(24 * time.Hour))
	v.pass(2 * time.Hour)
	require.Equal(t, durable.Succeeded, v.record(old).State)
	stopNew := v.start(job(time.Hour))
	v.pass(10 * time.Minute)
	_, err := v.store.Run(t.Context(), old)
	require.ErrorIs(t, err, store.ErrNotFound, "ended runs have it as soon as the first worker of the next version starts")
	stopNew()
	stop()
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
	old := v.enqueue(before.New(letter{To: "ann"}))
	defer v.start(shows(v, after, func(run *durable.Run[letter]) string { return "to " + run.Args.To }))()
	v.pass(time.Second)
	require.Equal(t, "to bob", v.saw(recent))
	require.Equal(t, durable.Pending, v.record(old).State, "this codec does not let plain args pass")
	require.Contains(t, *v.record(old).Error, "decode args")
}
