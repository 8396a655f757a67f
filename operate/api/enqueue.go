package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"time"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/internal/wire"
	"github.com/durable-worker/durable-worker/operate"
	"github.com/durable-worker/durable-worker/store"
)

// newRun is a run to be enqueued, with the words of the command enqueue. What is left
// out is the job's.
type newRun struct {
	ID          *store.RunID         `json:"id"`
	Job         string               `json:"job"`
	Args        json.RawMessage      `json:"args"`
	Queue       *string              `json:"queue"`
	DueAt       *time.Time           `json:"due_at"`
	After       *store.Duration      `json:"after"`
	ExpiresAt   *time.Time           `json:"expires_at"`
	Priority    *int                 `json:"priority"`
	MaxAttempts *int                 `json:"max_attempts"`
	Timeout     *store.Duration      `json:"timeout"`
	Tags        []string             `json:"tags"`
	Metadata    store.Metadata       `json:"metadata"`
	LimitedBy   []string             `json:"limited_by"`
	DependsOn   []operate.Dependency `json:"depends_on"`
	Unique      *string              `json:"unique"`
	UniqueFor   *store.Duration      `json:"unique_for"`
	Replace     *string              `json:"replace"`
	Debounce    *string              `json:"debounce"`
	Quiet       *store.Duration      `json:"quiet"`
	AtMost      *store.Duration      `json:"at_most"`
	Batch       *newBatch            `json:"batch"`
}

// newRuns is the body of POST /runs: one run, or several in runs.
type newRuns struct {
	newRun

	Runs []json.RawMessage `json:"runs"`
}

// enqueuedRuns answers to several.
type enqueuedRuns struct {
	Runs []operate.Enqueued `json:"runs"`
}

// enqueue stores runs.
func enqueue(c *call) (answer, error) {
	wanted, several, err := c.newRuns()
	if err != nil {
		return answer{}, err
	}
	key, err := idempotencyKey(c.r.Header)
	if err != nil {
		return answer{}, err
	}
	if err := idempotent(key, wanted, several); err != nil {
		return answer{}, err
	}
	known, err := c.op.Declared(c.r.Context())
	if err != nil {
		return answer{}, err
	}
	runs, err := c.made(wanted, several, known)
	if err != nil {
		return answer{}, err
	}
	if key != "" && wanted[0].ID == nil {
		runs[0].Key = store.Key{Text: "http:" + key, Policy: store.KeyUnique, HeldFor: idempotentFor}
	}
	stored, err := c.op.EnqueueAll(c.r.Context(), runs)
	if err != nil {
		if errors.Is(err, store.ErrInvalid) {
			err = with(http.StatusUnprocessableEntity, placed(err))
		}
		return answer{}, err
	}
	if stored[0].Existing && (key != "" || wanted[0].ID != nil) && !several {
		if err := c.sameAs(stored[0].ID, &runs[0]); err != nil {
			return answer{}, err
		}
	}
	status := http.StatusOK
	for _, one := range stored {
		if !one.Existing {
			status = http.StatusCreated
		}
	}
	if several {
		return answer{status: status, body: enqueuedRuns{stored}}, nil
	}
	return answer{status: status, body: stored[0]}, nil
}

// newRuns reads the body.
func (c *call) newRuns() (wanted []newRun, several bool, err error) {
	var given newRuns
	if err := c.body(&given); err != nil {
		return nil, false, err
	}
	if given.Runs == nil {
		return []newRun{given.newRun}, false, nil
	}
	if !reflect.ValueOf(given.newRun).IsZero() {
		return nil, true, wire.InBody("/runs", "a body has one run, or several in runs, and not both")
	}
	if n := len(given.Runs); n < 1 || n > store.MaxCommandRuns {
		return nil, true, wire.InBody("/runs", "%d runs: want 1 to %d", n, store.MaxCommandRuns)
	}
	var faults wire.FaultsError
	wanted = make([]newRun, len(given.Runs))
	for i, text := range given.Runs {
		if err := wire.Element(text, fmt.Sprintf("/runs/%d", i), &wanted[i]); err != nil {
			more, _ := errors.AsType[wire.FaultsError](err)
			faults = append(faults, more...)
		}
		if len(faults) > 20 {
			break
		}
	}
	if len(faults) > 0 {
		return nil, true, faults
	}
	return wanted, true, nil
}

// made are the runs as they are stored.
func (c *call) made(wanted []newRun, several bool, known map[string]store.JobInfo) ([]store.NewRun, error) {
	runs := make([]store.NewRun, len(wanted))
	trace := traceOf(c.r)
	var faults wire.FaultsError
	for i := range wanted {
		pointer := ""
		if several {
			pointer = fmt.Sprintf("/runs/%d", i)
		}
		w := &wanted[i]
		job, declared := known[w.Job]
		switch {
		case w.Job == "":
			faults = append(faults, wire.InBody(pointer+"/job", "want the name of a job")...)
			continue
		case !declared:
			_, err := c.op.Job(c.r.Context(), w.Job) // its error names those that are known
			return nil, err
		}
		options, more := w.options(pointer)
		faults = append(faults, more...)
		if w.Args == nil {
			w.Args = json.RawMessage("{}")
		}
		runs[i] = durable.RunOf(job, w.Args, options...)
		runs[i].Trace, runs[i].Batch = trace, w.Batch.stored()
		if w.ID != nil {
			runs[i].ID = *w.ID
		}
	}
	if len(faults) > 0 {
		return nil, faults[:min(len(faults), 20)]
	}
	return runs, nil
}

// options are what a run has that its job has not.
func (w *newRun) options(pointer string) (options []durable.Option, faults wire.FaultsError) {
	if w.DueAt != nil && w.After != nil {
		faults = append(faults, wire.InBody(pointer+"/after", "a run has one of due_at and after")...)
	}
	for member, at := range map[string]*time.Time{"/due_at": w.DueAt, "/expires_at": w.ExpiresAt} {
		if at != nil && at.IsZero() { // which elsewhere says that there is none
			faults = append(faults, wire.InBody(pointer+member, "want a year from 1970 to 9999")...)
		}
	}
	options = given(options, w.Queue, durable.OnQueue)
	options = given(options, w.DueAt, durable.At)
	options = given(options, (*time.Duration)(w.After), durable.After)
	options = given(options, w.ExpiresAt, durable.ExpiresAt)
	options = given(options, w.Priority, durable.Priority)
	options = given(options, w.MaxAttempts, durable.MaxAttempts)
	options = given(options, (*time.Duration)(w.Timeout), durable.Timeout)
	if len(w.Tags) > 0 {
		options = append(options, durable.Tags(w.Tags...))
	}
	if len(w.Metadata) > 0 {
		options = append(options, durable.Metadata(w.Metadata))
	}
	limits, more := limitedBy(w.LimitedBy, pointer)
	options, faults = append(options, limits...), append(faults, more...)
	conditions, more := w.dependsOn(pointer)
	options, faults = append(options, conditions...), append(faults, more...)
	keys, member, fault := w.key()
	if fault != "" {
		faults = append(faults, wire.InBody(pointer+member, "%s", fault)...)
	}
	return append(options, keys...), faults
}

// limitedBy are the options of the limits that a member names.
func limitedBy(texts []string, pointer string) (options []durable.Option, faults wire.FaultsError) {
	for i, text := range texts {
		use, err := store.ParseLimitUse(text)
		if err != nil {
			faults = append(faults, wire.InBody(fmt.Sprintf("%s/limited_by/%d", pointer, i), "%v", err)...)
			continue
		}
		options = append(options, durable.LimitedByUse(use))
	}
	return options, faults
}

// dependsOn are the options of the conditions that the run has.
func (w *newRun) dependsOn(pointer string) (options []durable.Option, faults wire.FaultsError) {
	for i := range w.DependsOn {
		at := fmt.Sprintf("%s/depends_on/%d", pointer, i)
		switch one := &w.DependsOn[i]; {
		case one.On == "":
			faults = append(faults, wire.InBody(at+"/on", "want success, end or failure")...)
		case len(one.Runs) == 0:
			faults = append(faults, wire.InBody(at+"/runs", "want the ids of runs")...)
		default:
			options = append(options, durable.DependsOn(one.Condition()))
		}
	}
	if len(w.DependsOn) > 0 && (w.DueAt != nil || w.After != nil) {
		faults = append(faults, wire.InBody(pointer+"/depends_on", "a run that depends on others has neither due_at nor after")...)
	}
	return options, faults
}

// key is the option of the run's key, if it has one, or what is wrong with which member.
func (w *newRun) key() (options []durable.Option, member, fault string) {
	const one = "a run has one of unique, replace and debounce"
	switch {
	case w.Debounce != nil && (w.Unique != nil || w.Replace != nil):
		return nil, "/debounce", one
	case w.Unique != nil && w.Replace != nil:
		return nil, "/replace", one
	case w.UniqueFor != nil && w.Unique == nil:
		return nil, "/unique_for", "want unique too"
	case w.Debounce == nil && w.Quiet != nil:
		return nil, "/quiet", "want debounce too"
	case w.Debounce == nil && w.AtMost != nil:
		return nil, "/at_most", "want debounce too"
	case w.Debounce != nil && w.Quiet == nil:
		return nil, "/debounce", "want quiet too, such as 5s"
	case w.UniqueFor != nil:
		return []durable.Option{durable.UniqueFor(*w.Unique, time.Duration(*w.UniqueFor))}, "", ""
	case w.Unique != nil:
		return []durable.Option{durable.Unique(*w.Unique)}, "", ""
	case w.Replace != nil:
		return []durable.Option{durable.Replace(*w.Replace)}, "", ""
	case w.Debounce != nil:
		var atMost time.Duration
		if w.AtMost != nil {
			atMost = time.Duration(*w.AtMost)
		}
		return []durable.Option{durable.Debounce(*w.Debounce, time.Duration(*w.Quiet), atMost)}, "", ""
	default:
		return nil, "", ""
	}
}

// given adds the option of a member that was given.
func given[T any](options []durable.Option, value *T, option func(T) durable.Option) []durable.Option {
	if value == nil {
		return options
	}
	return append(options, option(*value))
}

const (
	idempotentFor = 24 * time.Hour
	maxKey        = 200 // bytes of an Idempotency-Key
)

// idempotencyKey is the one key of a request, or none. An empty one, as of a variable that
// is not set, would leave a client unprotected that believes otherwise.
func idempotencyKey(header http.Header) (string, error) {
	given := header.Values("Idempotency-Key")
	switch {
	case len(given) == 0:
		return "", nil
	case len(given) > 1 || given[0] == "":
		return "", wire.InBody("", "the Idempotency-Key must be one, and have 1 to %d printable ASCII characters", maxKey)
	default:
		return given[0], nil
	}
}

// idempotent applies an Idempotency-Key: a UUID of version 7 is the id of the run.
func idempotent(key string, wanted []newRun, several bool) error {
	if key == "" {
		return nil
	}
	one := &wanted[0]
	switch {
	case several:
		return wire.InBody("/runs", "an Idempotency-Key is for one run: give each of several an id instead")
	case len(key) > maxKey || store.CheckTrace(key) != nil:
		return wire.InBody("", "the Idempotency-Key must have 1 to %d printable ASCII characters", maxKey)
	}
	if id, err := store.ParseRunID(key); err == nil && id.Version() == 7 {
		if one.ID != nil && *one.ID != id {
			return wire.InBody("/id", "it differs from the Idempotency-Key")
		}
		one.ID = &id
		return nil
	}
	if one.Unique != nil || one.Replace != nil || one.Debounce != nil {
		return wire.InBody("", "an Idempotency-Key that is not a UUID of version 7 is a unique key: not together with unique, replace or debounce")
	}
	return nil
}

// sameAs refuses a repeat that asks for something else than the first request.
func (c *call) sameAs(id store.RunID, run *store.NewRun) error {
	stored, err := c.op.Run(c.r.Context(), id)
	if errors.Is(err, store.ErrNotFound) { // it has ended and is gone
		return nil
	}
	if err != nil {
		return err
	}
	given, err := c.op.Redacted(c.r.Context(), run.Job, run.Args)
	switch {
	case err != nil:
		return err
	case stored.Job == run.Job && sameJSON(stored.Args, given):
		return nil
	default:
		return with(http.StatusUnprocessableEntity, fmt.Errorf("%w: run %s was enqueued under this key or id with another job or other args", store.ErrConflict, id))
	}
}

// sameJSON reports whether two JSON texts say the same.
func sameJSON(a, b []byte) bool {
	read := func(text []byte) (value any, err error) {
		decoder := json.NewDecoder(bytes.NewReader(text))
		decoder.UseNumber()
		err = decoder.Decode(&value)
		return value, err
	}
	x, err1 := read(a)
	y, err2 := read(b)
	return err1 == nil && err2 == nil && reflect.DeepEqual(x, y)
}

// traceOf is the trace that a request belongs to; empty: none. One that makes no sense
// is ignored, as its specification says.
func traceOf(r *http.Request) string {
	return store.TraceOf(r.Header.Get("Traceparent"), r.Header.Get("Tracestate"))
}
