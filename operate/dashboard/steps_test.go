package dashboard_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/operate"
	"github.com/durable-worker/durable-worker/operate/access"
	"github.com/durable-worker/durable-worker/store"
)

// hostileStep is the name of a step, and of the input that comes after it.
const hostileStep = `<img src=x onerror=alert(1)>"'` + "\u202e"

// waiting leaves a run that has recorded a result and a failure, and that waits for an input.
func waiting(t *testing.T, db engine) store.RunID {
	t.Helper()
	job := durable.NewJob[note]("order")
	worker := durable.NewWorker(db, durable.WorkerConfig{PollInterval: 20 * time.Millisecond})
	durable.Register(worker, job, func(ctx context.Context, run *durable.Run[note]) error {
		_, err := durable.Step(ctx, run, hostileStep, func(context.Context) (map[string]string, error) {
			return map[string]string{"text": "rulecanary", "other": "valuecanary<script>"}, nil
		})
		if err != nil {
			return err
		}
		_, err = durable.Step(ctx, run, "charge", func(context.Context) (int, error) { return 0, errors.New("textcanary<b>") }, durable.StepAttempts(1))
		if !durable.Final(err) {
			return err
		}
		_, err = durable.Receive[string](ctx, run, "ok"+hostileStep, time.Hour)
		return err
	})
	receipt, err := job.Enqueue(t.Context(), durable.NewClient(db), note{"x"})
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- worker.Run(ctx) }()
	require.Eventually(t, func() bool {
		recorded, err := store.StepsOf(t.Context(), db, receipt.ID)
		record, fault := db.Run(t.Context(), receipt.ID)
		return err == nil && fault == nil && len(recorded.Steps) == 3 && record.State == store.Pending
	}, time.Minute, 10*time.Millisecond)
	stop()
	require.NoError(t, <-ended)
	return receipt.ID
}

func TestTheStepsOfARunAreShownAndItsInputIsSent(t *testing.T) {
	onEngines(t, func(t *testing.T, db engine) {
		rule, err := operate.NewRedaction("text")
		require.NoError(t, err)
		op := operate.New(db, operate.Config{Redact: rule})
		t.Cleanup(op.Close)
		s := newSiteOf(t, db, op)
		id := waiting(t, db)
		path := "runs/" + id.String()
		page := s.get(path)
		has(t, page, "Steps", "charge", "1 failed try", "textcanary&lt;b&gt;", "valuecanary", "Waits for <em>ok&lt;img", "Send…", "waits for the input")
		lacks(t, page, "rulecanary", "<img src", "valuecanary<script>", "textcanary<b>", "\u202e")

		has(t, page, "Reveal…")
		shown := s.do("POST", path+"/reveal", form("reason", "ticket 4711"))
		has(t, shown.body, "rulecanary", "Steps and inputs")
		lacks(t, shown.body, "<img src", "valuecanary<script>")
		s.audited("run", id.String(), "reveal")

		asked := s.get(path + "/send?" + form("name", "ok"+hostileStep).Encode())
		has(t, asked, "Send the input", "Value", "The first value of a name counts", "&lt;img src")
		lacks(t, asked, "<img src", "\u202e")
		require.Equal(t, 400, s.do("GET", path+"/send", nil).status, "an input has a name")
		send := func(value string) answer {
			return s.do("POST", path+"/send", form("name", "ok"+hostileStep, "value", value, "back", path))
		}
		for value, fault := range map[string]string{`{"a`: "not valid JSON", `{"text":"•••"}`: "write the values"} {
			refused := send(value)
			require.Equal(t, 400, refused.status)
			has(t, refused.body, fault, "Send the input")
		}
		require.Equal(t, path+"?did=send", s.post(path+"/send", "name", "ok"+hostileStep, "value", ` "inputcanary<i>" `, "back", path))
		require.Equal(t, path+"?did=resend", s.post(path+"/send", "name", "ok"+hostileStep, "value", `"inputcanary<i>"`, "back", path))
		refused := send(`"another"`)
		require.Equal(t, 400, refused.status)
		has(t, refused.body, "was sent before, with another value")
		recorded, err := store.StepsOf(t.Context(), db, id)
		require.NoError(t, err)
		require.Len(t, recorded.Inputs, 1)
		require.Contains(t, recorded.Inputs[0].By, "ada")
		page = s.get(path + "?did=send")
		has(t, page, "Sent", "sent by ada", "inputcanary")
		lacks(t, page, "Waits for", "inputcanary<i>", "<img src")
	})
}

// TestAFailedStepIsForgotten: the question says what follows, and the audit log who has done it.
func TestAFailedStepIsForgotten(t *testing.T) {
	onEngines(t, func(t *testing.T, db engine) {
		s := newSite(t, db)
		id := waiting(t, db)
		path := "runs/" + id.String()
		page := s.get(path)
		has(t, page, "Forget…", path+"/forget?", "name=charge")
		require.Equal(t, 1, strings.Count(page, "Forget…"), "of three steps one has failed")
		asked := s.get(path + "/forget?" + form("name", "charge").Encode())
		has(t, asked, "Forget the step", "charge", "recorded as failed, after 1 failed try", "The 1 step recorded after it keep", "stays due when it is")
		hostile := s.get(path + "/forget?" + form("name", hostileStep).Encode())
		has(t, hostile, "&lt;img src", "recorded as done.")
		lacks(t, hostile, "<img src", "\u202e")
		require.Equal(t, 404, s.do("GET", path+"/forget?"+form("name", "none").Encode(), nil).status)
		require.Equal(t, 404, s.do("GET", path+"/forget", nil).status)

		require.Equal(t, path+"?did=forget", s.post(path+"/forget", "name", "charge", "back", path))
		recorded, err := store.StepsOf(t.Context(), db, id)
		require.NoError(t, err)
		require.Len(t, recorded.Steps, 2)
		page = s.get(path + "?did=forget")
		has(t, page, "Forgotten")
		lacks(t, page, "Forget…", "charge")
		s.audited("run", id.String(), "forget_steps")
		require.Equal(t, 404, s.do("POST", path+"/forget", form("name", "charge", "back", path)).status, "it was forgotten")
	})
}

// TestViewersSeeNoValuesOfSteps: they see how large these are, and cannot send.
func TestViewersSeeNoValuesOfSteps(t *testing.T) {
	db := engines["memory"](t)
	id := waiting(t, db)
	s := newSite(t, db)
	path := "runs/" + id.String()
	has(t, s.get(path), "rulecanary", "valuecanary", "textcanary", "Send…")
	s.role = access.Viewer
	page := s.get(path)
	has(t, page, "textcanary", "operators see them", "Waits for")
	lacks(t, page, "valuecanary", "rulecanary", "Send…", "Forget…")
	lacks(t, s.get(path+"/forget?name=charge"), "canary")
	require.Equal(t, 403, s.do("POST", path+"/forget", form("name", "charge")).status)
	require.Equal(t, 403, s.do("POST", path+"/send", form("name", "ok", "value", "1")).status)
	s.texts = access.Operator
	page = newSiteWith(t, s).get(path)
	lacks(t, page, "canary")
}
