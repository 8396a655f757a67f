package operate_test

import (
	"context"
	"encoding/json"
	"io"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/operate"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/memory"
)

// TestAJobHidesValuesOfItsOwn: what the code of a job says holds for its runs, also those
// under an earlier name, and for no other.
func TestAJobHidesValuesOfItsOwn(t *testing.T) {
	t.Parallel()
	all, err := operate.NewRedaction("token")
	require.NoError(t, err)
	charge := durable.NewJob[map[string]any]("charge", durable.Redacted("card.number"), durable.Alias("pay"))
	db := memory.New(memory.Config{})
	o := operate.New(db, operate.Config{Redact: all, Jobs: []store.JobInfo{charge.Info(), {Name: "broken", Code: store.JobCode{Redacted: []string{"a..b"}}}}})
	const args = `{"card":{"number":"canary"},"token":"canary","n":1}`
	for name, want := range map[string]string{
		"charge": `{"card":{"number":"•••"},"token":"•••","n":1}`,
		"pay":    `{"card":{"number":"•••"},"token":"•••","n":1}`,
		"other":  `{"card":{"number":"canary"},"token":"•••","n":1}`,
		"broken": `"•••"`,
	} {
		run := store.NewRun{ID: store.NewRunID(), Job: name, Queue: store.DefaultQueue, MaxAttempts: 1, Args: []byte(args)}
		made, err := operate.New(db, operate.Config{}).Enqueue(t.Context(), run)
		require.NoError(t, err)
		shown, err := o.Run(t.Context(), made.ID)
		require.NoError(t, err)
		require.JSONEq(t, want, string(shown.Args), name)
		again, err := o.As("ann").Rerun(t.Context(), made.ID, shown.Args)
		require.NoError(t, err)
		stored, err := db.Run(t.Context(), again.ID)
		require.NoError(t, err)
		require.JSONEq(t, args, string(stored.Args), "what is sent back keeps its values: %s", name)
	}
	client := durable.NewClient(db)
	_, err = durable.NewJob[int]("x", durable.Redacted("a..b")).Enqueue(t.Context(), client, 1)
	require.ErrorContains(t, err, `redacted "a..b"`)
}

// TestWhatIsHiddenIsNotFound: a search does not find out what a rule hides.
func TestWhatIsHiddenIsNotFound(t *testing.T) {
	t.Parallel()
	rule, err := operate.NewRedaction("token")
	require.NoError(t, err)
	db := memory.New(memory.Config{})
	o := operate.New(db, operate.Config{Redact: rule}).As("ann")
	job := durable.NewJob[map[string]any]("mail")
	_, err = o.Enqueue(t.Context(), job.New(map[string]any{"token": "4711", "n": 1}))
	require.NoError(t, err)
	open, err := o.Enqueue(t.Context(), job.New(map[string]any{"token": "x", "order": "4711"}))
	require.NoError(t, err)
	filter := store.Filter{Args: "4711"}
	list, err := o.Runs(t.Context(), filter)
	require.NoError(t, err)
	require.Len(t, list.Runs, 1)
	require.Equal(t, open.ID, list.Runs[0].ID)
	_, err = o.CountMatching(t.Context(), filter)
	require.ErrorIs(t, err, store.ErrInvalid)
	_, known := o.Matching(t.Context(), store.CancelRuns, filter)
	require.False(t, known)
	preview, err := o.PreviewAll(t.Context(), store.CancelRuns, filter, nil)
	require.NoError(t, err)
	require.Equal(t, 1, preview.Seen)
	done, err := o.CancelAll(t.Context(), filter, "", nil)
	require.NoError(t, err)
	require.Equal(t, 1, done.Changed)

	for _, hides := range []operate.Hiding{operate.HideArgs, operate.HideTexts} {
		viewer := o.Hiding(hides).As("eve")
		filter := store.Filter{Args: "4711"}
		if hides == operate.HideTexts {
			filter = store.Filter{Error: "smtp"}
		}
		_, err = viewer.Runs(t.Context(), filter)
		require.ErrorIs(t, err, operate.ErrHidden)
		_, err = viewer.CountMatching(t.Context(), filter)
		require.Error(t, err)
		_, err = viewer.PreviewAll(t.Context(), store.CancelRuns, filter, nil)
		require.ErrorIs(t, err, operate.ErrHidden)
		_, err = viewer.StartBulk(operate.BulkOrder{Action: store.CancelRuns, Filter: filter})
		require.ErrorIs(t, err, operate.ErrHidden)
		require.Equal(t, operate.Forbidden, viewer.CodeOf(err))
	}
}

// TestHiddenPartsAreCounted: who does not see a part sees how large it is.
func TestHiddenPartsAreCounted(t *testing.T) {
	t.Parallel()
	db := memory.New(memory.Config{})
	o := operate.New(db, operate.Config{})
	made, err := o.Enqueue(t.Context(), durable.NewJob[map[string]int]("mail").New(map[string]int{"n": 1}))
	require.NoError(t, err)
	_, err = o.As("ann").Cancel(t.Context(), "not wanted", made.ID)
	require.NoError(t, err)
	shown, err := o.Hiding(operate.HideArgs|operate.HideTexts).Run(t.Context(), made.ID)
	require.NoError(t, err)
	text, err := json.Marshal(shown)
	require.NoError(t, err)
	require.Equal(t, &store.Hidden{Args: 7, Texts: len("not wanted")}, shown.Hidden)
	require.NotContains(t, string(text), "not wanted")
	plain, err := o.Run(t.Context(), made.ID)
	require.NoError(t, err)
	require.Equal(t, "not wanted", *plain.Error, "the Operator itself still shows it")
}

// TestRulesOfJobsAreObeyedWithoutTheirCode: what a worker has declared of its job holds in
// a program that does not have the job, also under the job's earlier names, and with what
// the program hides itself. A declaration that cannot be read hides everything.
func TestRulesOfJobsAreObeyedWithoutTheirCode(t *testing.T) {
	t.Parallel()
	charge := durable.NewJob[map[string]any]("charge", durable.Redacted("card.number"), durable.Alias("pay"))
	db := memory.New(memory.Config{})
	broken := store.JobInfo{Name: "broken", Queue: store.DefaultQueue, MaxAttempts: 1, Code: store.JobCode{Redacted: []string{""}}}
	require.NoError(t, db.Declare(t.Context(), store.Declaration{Jobs: []store.JobInfo{charge.Info(), broken}}))
	all, err := operate.NewRedaction("token")
	require.NoError(t, err)
	o := operate.New(db, operate.Config{Redact: all, Jobs: []store.JobInfo{{Name: "charge", Code: store.JobCode{Redacted: []string{"by"}}}}}).As("ann")
	for name, want := range map[string]string{
		"charge":  `{"card":{"number":"•••"},"token":"•••","by":"•••"}`,
		"pay":     `{"card":{"number":"•••"},"token":"•••","by":"ann"}`,
		"unknown": `{"card":{"number":"canary"},"token":"•••","by":"ann"}`,
		"broken":  `"•••"`,
	} {
		run := store.NewRun{ID: store.NewRunID(), Job: name, Queue: store.DefaultQueue, MaxAttempts: 1, Args: []byte(`{"card":{"number":"canary"},"token":"canary","by":"ann"}`)}
		_, err := db.Enqueue(t.Context(), run)
		require.NoError(t, err)
		shown, err := o.Run(t.Context(), run.ID)
		require.NoError(t, err)
		require.JSONEq(t, want, string(shown.Args), name)
	}
	list, err := o.Runs(t.Context(), store.Filter{Args: "canary", Jobs: []string{"charge", "pay"}})
	require.NoError(t, err)
	require.Empty(t, list.Runs, "what is hidden is not found")
	_, err = o.SaveSchedule(t.Context(), store.Schedule{Name: "s", Rule: store.Every(3600e9), Job: "charge", Queue: "default", MaxAttempts: 1, Args: []byte(`{"card":{"number":"canary"}}`)})
	require.NoError(t, err)
	schedule, err := o.Schedule(t.Context(), "s")
	require.NoError(t, err)
	require.NotContains(t, string(schedule.Args), "canary")
}

// undeclared is a store whose declarations cannot be read.
type undeclared struct{ store.Store }

func (undeclared) Jobs(context.Context) ([]store.JobInfo, error) { return nil, io.ErrUnexpectedEOF }

// TestNothingIsShownUnderUnknownRules: where it cannot be read what jobs hide, there is an
// error, and no run.
func TestNothingIsShownUnderUnknownRules(t *testing.T) {
	t.Parallel()
	db := memory.New(memory.Config{})
	run := durable.NewJob[map[string]any]("charge").New(map[string]any{"token": "canary"})
	_, err := db.Enqueue(t.Context(), run)
	require.NoError(t, err)
	o := operate.New(undeclared{db}, operate.Config{})
	shown, err := o.Run(t.Context(), run.ID)
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
	require.Empty(t, shown)
	list, err := o.Runs(t.Context(), store.Filter{})
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
	require.Empty(t, list.Runs)
	_, err = o.Explain(t.Context(), run.ID)
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
	_, err = o.Schedules(t.Context(), operate.Part{})
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
}

// TestARevealIsAudited: an operator sees what a rule hides of one run after the audit log says
// so, and who may not see everything has nothing revealed.
func TestARevealIsAudited(t *testing.T) {
	t.Parallel()
	rule, err := operate.NewRedaction("token")
	require.NoError(t, err)
	db := memory.New(memory.Config{})
	var passed []store.Change
	o := operate.New(db, operate.Config{Redact: rule, Changed: func(c store.Change) { passed = append(passed, c) }})
	run := durable.NewJob[map[string]any]("mail").New(map[string]any{"token": "canary"})
	_, err = db.Enqueue(t.Context(), run)
	require.NoError(t, err)
	audited := func() []store.Change {
		list, err := o.Changes(t.Context(), store.ChangeFilter{Kind: "run", Subject: run.ID.String()})
		require.NoError(t, err)
		return list.Changes
	}
	for _, hides := range []operate.Hiding{operate.HideArgs, operate.HideTexts} {
		shown, err := o.Hiding(hides).As("eve").Reveal(t.Context(), run.ID, "curious")
		require.ErrorIs(t, err, operate.ErrHidden)
		require.Empty(t, shown)
	}
	_, err = o.As("").Reveal(t.Context(), run.ID, "")
	require.ErrorIs(t, err, store.ErrInvalid)
	require.Empty(t, audited())

	shown, err := o.As("ann@office").Reveal(t.Context(), run.ID, "ticket 4711")
	require.NoError(t, err)
	require.JSONEq(t, `{"token":"canary"}`, string(shown.Args))
	changes := audited()
	require.Len(t, changes, 1)
	require.Equal(t, "ann@office", changes[0].Actor)
	require.Equal(t, "reveal", changes[0].Action)
	require.JSONEq(t, `{"reason":"ticket 4711"}`, string(changes[0].Detail))
	require.Len(t, passed, 1)
	require.Equal(t, "reveal", passed[0].Action)
	shown, err = o.Run(t.Context(), run.ID)
	require.NoError(t, err)
	require.JSONEq(t, `{"token":"•••"}`, string(shown.Args), "for that one look")
	_, err = o.As("ann").Reveal(t.Context(), store.NewRunID(), "")
	require.ErrorIs(t, err, store.ErrNotFound)
}
