package operate

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/internal/rules"
	"github.com/durable-worker/durable-worker/internal/storable"
	"github.com/durable-worker/durable-worker/store"
)

// NamedRun is the id of one run.
type NamedRun struct {
	ID store.RunID `json:"id"`
}

// Enqueued is the answer to one enqueued run.
type Enqueued struct {
	ID       store.RunID `json:"id"`       // of the run that is there now
	Existing bool        `json:"existing"` // it was already there: no run was stored
}

// Enqueue stores one run, as durable.Client does.
func (o *Operator) Enqueue(ctx context.Context, run store.NewRun) (Enqueued, error) {
	if err := o.unmasked(ctx, run); err != nil {
		return Enqueued{}, err
	}
	receipts, err := o.client.Enqueue(ctx, run)
	if err != nil {
		return Enqueued{}, err
	}
	return Enqueued{ID: receipts[0].ID, Existing: receipts[0].Existing}, nil
}

// EnqueueAll stores runs in one transaction, as durable.Client does: all of them, or none.
// The answers are in their order.
func (o *Operator) EnqueueAll(ctx context.Context, runs []store.NewRun) ([]Enqueued, error) {
	if err := o.unmasked(ctx, runs...); err != nil {
		return nil, err
	}
	receipts, err := o.client.Enqueue(ctx, runs...)
	if err != nil {
		return nil, err
	}
	stored := make([]Enqueued, len(receipts))
	for i, receipt := range receipts {
		stored[i] = Enqueued{ID: receipt.ID, Existing: receipt.Existing}
	}
	o.hub.touch("runs")
	return stored, nil
}

// unmasked refuses runs whose args were copied from what is shown with masks.
func (o *Operator) unmasked(ctx context.Context, runs ...store.NewRun) error {
	hidden, err := o.redactions(ctx)
	if err != nil {
		return err
	}
	for i := range runs {
		if _, err := hidden.of(runs[i].Job).restored(runs[i].Args, nil); err != nil {
			return err
		}
	}
	return nil
}

// Declared returns the jobs that workers have declared and those of Config.Jobs, by
// name. What workers declare counts for more.
func (o *Operator) Declared(ctx context.Context) (map[string]store.JobInfo, error) {
	jobs, err := o.store.Jobs(ctx)
	if err != nil {
		return nil, err
	}
	known := make(map[string]store.JobInfo, len(jobs))
	for _, job := range slices.Concat(o.config.Jobs, jobs) {
		known[job.Name] = job
	}
	return known, nil
}

// jobsNamed bounds the jobs that an error names.
const jobsNamed = 100

// Job returns a job as its workers have declared it, or else as Config.Jobs has
// it. The ErrUnknownJob for another name lists the names that are known.
func (o *Operator) Job(ctx context.Context, name string) (store.JobInfo, error) {
	if len(name) > wantedMost || !storable.IsText(name) {
		return store.JobInfo{}, checkWanted(name)
	}
	jobs, err := o.store.Jobs(ctx)
	if err != nil {
		return store.JobInfo{}, err
	}
	var known []string
	for _, job := range slices.Concat(jobs, o.config.Jobs) {
		if job.Name == name {
			return job, nil
		}
		known = append(known, job.Name)
	}
	err = fmt.Errorf("%w %q", store.ErrUnknownJob, name)
	if len(known) == 0 {
		return store.JobInfo{}, fmt.Errorf("%w: no worker has declared any job yet", err)
	}
	slices.Sort(known)
	known = slices.Compact(known)
	more := ""
	if left := len(known) - jobsNamed; left > 0 {
		known, more = known[:jobsNamed], fmt.Sprintf(", and %d more", left)
	}
	return store.JobInfo{}, fmt.Errorf("%w: known jobs are %s%s", err, strings.Join(known, ", "), more)
}

// Rerun creates a new run with the job, queue, priority, policy, tags and metadata of
// an earlier one, and with its args unless you give others. It is due now; options
// change that, and whatever else they say. Its crash policy is the one that the
// job's workers have declared.
func (a *Actor) Rerun(ctx context.Context, id store.RunID, args json.RawMessage, options ...durable.Option) (NamedRun, error) {
	record, err := a.store.Run(ctx, id)
	if err != nil {
		return NamedRun{}, fmt.Errorf("rerun: %w", err)
	}
	hidden, err := a.redactions(ctx)
	if err != nil {
		return NamedRun{}, fmt.Errorf("rerun: %w", err)
	}
	if args, err = hidden.of(record.Job).restored(args, record.Args); err != nil {
		return NamedRun{}, fmt.Errorf("rerun: %w", err)
	}
	same := args == nil
	if same {
		args = record.Args
	}
	jobs, err := a.store.Jobs(ctx)
	if err != nil {
		return NamedRun{}, fmt.Errorf("rerun: %w", err)
	}
	job := store.JobInfo{Name: record.Job, Queue: record.Queue, Priority: record.Priority, MaxAttempts: record.MaxAttempts, Timeout: record.Timeout}
	for _, declared := range jobs {
		if declared.Name == job.Name {
			job.OnCrash = declared.OnCrash
			if !same {
				job.Limits = declared.Limits // their keys follow from the args
			}
		}
	}
	run := durable.RunOf(job, args, options...)
	if same && len(run.Limits) == 0 {
		if run.Limits, err = usesOf(record.Limits); err != nil {
			return NamedRun{}, fmt.Errorf("rerun: %w: %w", store.ErrInvalid, err)
		}
	}
	if len(run.Tags) == 0 {
		run.Tags = record.Tags
	}
	run.Metadata = inherited(record.Metadata, run.Metadata)
	if _, err := a.store.Rerun(ctx, id, run, a.by); err != nil {
		return NamedRun{}, err
	}
	a.note(kindRun, id.String(), rules.Reruns, "", 0)
	return NamedRun{run.ID}, nil
}

// usesOf reads the limits of a record.
func usesOf(texts []string) (uses []store.LimitUse, err error) {
	for _, text := range texts {
		use, err := store.ParseLimitUse(text)
		if err != nil {
			return nil, err
		}
		if _, capped := store.CappedQueue(use.Limit); !capped { // the queue has its cap itself
			uses = append(uses, use)
		}
	}
	return uses, nil
}

// inherited is metadata with what has been given beside it.
func inherited(metadata, given store.Metadata) store.Metadata {
	if len(given) == 0 {
		return metadata
	}
	merged := store.Metadata{}
	maps.Copy(merged, metadata)
	maps.Copy(merged, given)
	return merged
}

// On says how a run must have ended before those are due that depend on it.
type On string

// The words of conditions.
const (
	OnSuccess On = "success" // all of its runs have succeeded
	OnEnd     On = "end"     // all of its runs have ended, in whatever way
	OnFailure On = "failure" // one of its runs is dead, cancelled or deleted
)

var wants = map[On]store.Want{ //nolint:gochecknoglobals // a constant table
	OnSuccess: store.WantSucceeded, OnEnd: store.WantEnded, OnFailure: store.WantFailed,
}

// onOf is the word of what is wanted.
func onOf(want store.Want) On {
	for on, wanted := range wants {
		if wanted == want {
			return on
		}
	}
	return On(want.String())
}

// UnmarshalText reads the word of a condition.
func (o *On) UnmarshalText(text []byte) error {
	if _, known := wants[On(text)]; !known {
		return fmt.Errorf("%.50q is not a condition: want %s, %s or %s", text, OnSuccess, OnEnd, OnFailure)
	}
	*o = On(text)
	return nil
}

// Dependency is a condition of a run to be enqueued.
type Dependency struct {
	On   On            `json:"on"`
	Runs []store.RunID `json:"runs"`
}

// Condition is the condition as stores have it.
func (d *Dependency) Condition() store.Condition {
	return store.Condition{Want: wants[d.On], Runs: d.Runs}
}

// Dependencies reads conditions as people write them: ids of runs, or the first MinPrefix or more
// characters of them, separated by commas, each behind success:, end: or failure: if it begins
// another condition. Without a word the first condition of a text is success.
func (o *Operator) Dependencies(ctx context.Context, texts ...string) ([]Dependency, error) {
	var found []Dependency
	for _, text := range texts {
		first := len(found)
		for part := range strings.SplitSeq(text, ",") {
			word, id, worded := strings.Cut(strings.TrimSpace(part), ":")
			if !worded {
				word, id = string(OnSuccess), word
			}
			if worded || len(found) == first {
				next := Dependency{}
				if err := next.On.UnmarshalText([]byte(word)); err != nil {
					return nil, fmt.Errorf("%w: %w", store.ErrInvalid, err)
				}
				found = append(found, next)
			}
			run, err := o.FindID(ctx, strings.TrimSpace(id))
			if err != nil {
				return nil, err
			}
			last := &found[len(found)-1]
			last.Runs = append(last.Runs, run)
		}
	}
	return found, nil
}
