package durable

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/google/uuid"

	"github.com/durable-worker/durable-worker/store"
)

// Call enqueues a run of the job as a child of this run, and returns its result when it has ended.
// While it waits, this run has no slot and no lease: Call returns an error, the park, as Sleep
// does; the handler is executed again from its beginning when the child has ended.
//
// The child is stored once, however often the handler is executed, since its ID follows from this
// run's and from name; see IDFrom. Its result is recorded under name when it is read, as that of a
// step: a later retry of the child does not change it. If the child is dead, cancelled or deleted,
// Call returns a *CallError, in every execution. A retry of this run forgets that, unless a later
// step was recorded, and waits for the child again: retry the child first.
//
// The options are those of Enqueue but for keys and conditions, because the name makes the child
// once. When this run is cancelled, or deleted before it has ended, its unfinished children are
// cancelled. When it is dead, they are not: a retry of it finds them. A deadline for the child is
// ExpiresAt. A child that waits for a place of a limit which this run holds until it finishes
// waits forever: give them different limits.
func (j ReturningJob[A, R]) Call(ctx context.Context, run AnyRun, name string, args A, options ...Option) (R, error) {
	results, err := j.callAll(ctx, run, name, []A{args}, options)
	if err != nil || len(results) == 0 {
		var none R
		return none, err
	}
	return results[0], nil
}

// CallAll is Call for a child for each of the args, at most store.MaxSources. This run is executed
// again once, when the last of them has ended. The results are in the order of the args. If
// children have failed, CallAll returns the results of the others together with a *CallError that
// lists them. Call it with the same args in every execution: another number than before is
// ErrInvalid. The results together may have store.MaxStepsSize bytes.
func (j ReturningJob[A, R]) CallAll(ctx context.Context, run AnyRun, name string, args []A, options ...Option) ([]R, error) {
	return j.callAll(ctx, run, name, args, options)
}

// Start enqueues a run of the job, once however often the handler is executed, and does not wait
// for it. It is no child: it is not cancelled with this run. Its ID is IDFrom(run.ID, name).
func (j Job[A]) Start(ctx context.Context, run AnyRun, name string, args A, options ...Option) error {
	x := run.underWay()
	known, err := x.book().Begin(ctx, name)
	if err != nil {
		return err
	}
	if known != nil {
		_, err := x.resultOf(*known, name)
		return err
	}
	started, _ := j.make(onlyRun, args, append(options[:len(options):len(options)], withID(IDFrom(x.run.ID, name))))
	if _, err := x.enqueueUnder(ctx, []NewRun{started}); err != nil {
		return fmt.Errorf("start %q: %w", name, err)
	}
	_, err = x.recordValue(ctx, store.NewStep{Name: name, Kind: store.StepDone}, started.ID)
	return err
}

// IDFrom is the ID of the run that a handler enqueues under a name, as the ith of several: the same
// for the same. It finds the child of a run.
func IDFrom(parent RunID, name string, i ...int) RunID {
	h := sha256.New()
	h.Write(parent[:])
	h.Write([]byte(name))
	for _, n := range i {
		_ = binary.Write(h, binary.BigEndian, int64(n))
	}
	var id uuid.UUID
	copy(id[:], h.Sum(nil))
	copy(id[:6], parent[:6]) // its time: children stand beside their parents in the index
	id[6] = id[6]&0x0f | 0x70
	id[8] = id[8]&0x3f | 0x80
	return id
}

// CallError says that children of a run have failed. It is recorded with the run, so every
// execution gets the same one; Final is true for it.
type CallError struct {
	Name   string
	Failed []ChildError
}

// ChildError is one child that has failed.
type ChildError struct {
	Index int // of its args
	EndedError
}

// Error names the step, and the first of the children that have failed.
func (e *CallError) Error() string {
	text := []string{fmt.Sprintf("call %q", e.Name)}
	if len(e.Failed) > 0 {
		text = append(text, e.Failed[0].Error())
	}
	if more := len(e.Failed) - 1; more > 0 {
		text = append(text, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(text, ": ")
}

// Unwrap returns the children's errors.
func (e *CallError) Unwrap() (errs []error) {
	for i := range e.Failed {
		errs = append(errs, &e.Failed[i].EndedError)
	}
	return errs
}

// childEnd is how a child has ended, as it is recorded.
type childEnd struct {
	State  store.State     `json:"state"`
	Result json.RawMessage `json:"result,omitempty"`
	Reason string          `json:"reason,omitempty"`
}

func (j ReturningJob[A, R]) callAll(ctx context.Context, run AnyRun, name string, args []A, options []Option) ([]R, error) {
	x := run.underWay()
	ids := childIDs(x.run.ID, name, len(args))
	all, err := x.children(ctx, name, ids, func() []NewRun { return j.childrenOf(x.run.ID, name, args, options) }, j.childEnd)
	if err != nil {
		return nil, err
	}
	results, failed := make([]R, len(all)), &CallError{Name: name}
	for i := range all {
		if all[i].State != Succeeded {
			failed.Failed = append(failed.Failed, ChildError{i, EndedError{ID: ids[i], State: all[i].State, Reason: all[i].Reason}})
			continue
		}
		if len(all[i].Result) == 0 {
			continue
		}
		if err := json.Unmarshal(all[i].Result, &results[i]); err != nil {
			return results, fmt.Errorf("call %q: the result of run %s is no %T: %w", name, ids[i], results[i], err)
		}
	}
	if len(failed.Failed) > 0 {
		return results, failed
	}
	return results, nil
}

// childrenOf makes the children of a run under a name.
func (j ReturningJob[A, R]) childrenOf(parent RunID, name string, args []A, options []Option) []NewRun {
	children, ids := make([]NewRun, len(args)), childIDs(parent, name, len(args))
	for i := range args {
		children[i], _ = j.make(onlyRun, args[i], append(options[:len(options):len(options)], withID(ids[i])))
	}
	return children
}

// childEnd reads how a child has ended.
func (j ReturningJob[A, R]) childEnd(outcome *store.RunOutcome) (childEnd, error) {
	if !outcome.Found {
		return childEnd{State: Cancelled, Reason: "it was deleted"}, nil
	}
	found := childEnd{State: outcome.State, Reason: outcome.Reason}
	text, err := j.open(Record{ID: outcome.ID, Job: outcome.Job}, ResultPart, outcome.Result)
	if len(outcome.Result) == 0 && !errors.Is(err, ErrInvalid) {
		return found, nil
	}
	found.Result = text
	return found, err
}

func childIDs(parent RunID, name string, n int) []RunID {
	if n == 1 {
		return []RunID{IDFrom(parent, name)}
	}
	ids := make([]RunID, n)
	for i := range ids {
		ids[i] = IDFrom(parent, name, i)
	}
	return ids
}

// children returns how the children of a name have ended. Else the error is a park, until they
// have.
func (x *execution) children(ctx context.Context, name string, ids []RunID, build func() []NewRun, read func(*store.RunOutcome) (childEnd, error)) ([]childEnd, error) {
	if len(ids) > store.MaxSources {
		return nil, fmt.Errorf("%w: call %q: %d children: want at most %d", ErrInvalid, name, len(ids), store.MaxSources)
	}
	known, err := x.book().Begin(ctx, name)
	switch {
	case err != nil || len(ids) == 0:
		return nil, err
	case known == nil:
		if _, err := x.startChildren(ctx, name, build()); err != nil {
			return nil, err
		}
		return nil, x.book().ParkForChildren(ctx, name)
	}
	switch known.Kind {
	case store.StepChildren:
		if known.Tries != len(ids) {
			return nil, otherChildren(name, known.Tries, len(ids))
		}
		return x.awaitChildren(ctx, name, ids, read)
	case store.StepDone, store.StepFailed:
		return x.endedOf(known, name, len(ids))
	default:
		return nil, notACall(name, known.Kind)
	}
}

// startChildren stores the children of a name, and that this run waits for them.
func (x *execution) startChildren(ctx context.Context, name string, children []NewRun) (step *store.StepRecord, err error) {
	ctx, children, ended := observeEnqueue(ctx, x.w.config.Hooks.Enqueue, children)
	step, err = x.book().Call(ctx, name, children)
	ended(err)
	return step, err
}

func notACall(name string, kind store.StepKind) error {
	return fmt.Errorf("%w: step %q is stored as a %s, not as a call: give it another name", ErrInvalid, name, kind)
}

func otherChildren(name string, stored, given int) error {
	return fmt.Errorf("%w: call %q: it was made for %d children, and now for %d: record in a step what they follow from", ErrInvalid, name, stored, given)
}

// awaitChildren records how children have ended, if all have.
func (x *execution) awaitChildren(ctx context.Context, name string, ids []RunID, read func(*store.RunOutcome) (childEnd, error)) ([]childEnd, error) {
	outcomes, err := x.book().Outcomes(ctx, ids)
	if err != nil {
		return nil, fmt.Errorf("call %q: %w", name, err)
	}
	all := make([]childEnd, len(outcomes))
	fresh := store.NewStep{Name: name, Kind: store.StepDone, Children: len(ids)}
	for i := range outcomes {
		if outcome := &outcomes[i]; outcome.Found && !outcome.State.Terminal() {
			return nil, x.book().ParkForChildren(ctx, name)
		}
		all[i], err = read(&outcomes[i])
		if err != nil {
			return nil, fmt.Errorf("call %q: %w", name, err)
		}
		if all[i].State != Succeeded {
			fresh.Kind, fresh.Error = store.StepFailed, all[i].Reason
		}
	}
	record, err := x.recordValue(ctx, fresh, all)
	if err != nil {
		return nil, err
	}
	return x.endedOf(&record, name, len(ids))
}

// endedOf reads how children have ended from what is recorded.
func (x *execution) endedOf(step *store.StepRecord, name string, n int) (all []childEnd, err error) {
	text, err := x.unsealNamed(StepPart, step.Name, step.Value)
	if err == nil {
		err = json.Unmarshal(text, &all)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: step %q is stored, but not as a call: %w", ErrInvalid, name, err)
	}
	if len(all) != n {
		return nil, otherChildren(name, len(all), n)
	}
	return all, nil
}

// recordValue records a step with a value.
func (x *execution) recordValue(ctx context.Context, step store.NewStep, value any) (store.StepRecord, error) {
	text, err := encodeStep(step.Name, value)
	if err != nil {
		return store.StepRecord{}, err
	}
	step.Holder = x.holder()
	most := store.MaxStepSize
	if step.Children > 1 {
		most = store.MaxStepsSize
	}
	step.Value, err = x.book().SealedWithin(step.Name, text, most)
	if err != nil {
		return store.StepRecord{}, err
	}
	return x.book().Record(ctx, step)
}

// enqueueUnder stores runs while this execution has its run.
func (x *execution) enqueueUnder(ctx context.Context, runs []NewRun) ([]Receipt, error) {
	client := Client{to: underRun{x.w.store, x.holder()}, hook: x.w.config.Hooks.Enqueue}
	return client.Enqueue(ctx, runs...)
}

// DependsOn stores a run as a dependent of others: it is due when all the conditions are met, and
// not before. It holds no slot and no lease meanwhile. The sources may be runs of the same call of
// Enqueue, or runs that were stored before; one that does not exist is store.ErrNotFound, and
// nothing is stored. At most store.MaxSources sources.
//
// What was met stays met. A dependent of which a condition can never be met is cancelled, with the
// reason; a dead source holds its dependents that want its success, until it is retried, or deleted
// by retention. It goes with neither At nor After, nor with Replace or Debounce; at ExpiresAt a
// dependent that still waits is cancelled.
func DependsOn(conditions ...store.Condition) Option {
	return Option{"DependsOn", onlyRun, func(p *policy) { p.dependsOn = append(p.dependsOn[:len(p.dependsOn):len(p.dependsOn)], conditions...) }}
}

// OnSuccess is met when all of the runs have succeeded. One that is cancelled or deleted cancels
// the dependent; one that is dead holds it, or cancels it too with OnSuccess(…).CancelOnDead().
func OnSuccess(ids ...RunID) store.Condition {
	return store.Condition{Want: store.WantSucceeded, Runs: ids}
}

// OnEnd is met when all of the runs have ended, in whatever way.
func OnEnd(ids ...RunID) store.Condition {
	return store.Condition{Want: store.WantEnded, Runs: ids}
}

// OnFailure is met when one of the runs is dead, cancelled or deleted. When all of them have
// succeeded, the dependent is cancelled.
func OnFailure(ids ...RunID) store.Condition {
	return store.Condition{Want: store.WantFailed, Runs: ids}
}

// ResultOf returns the result of a run that this one depends on, decoded by its job's codec. A run
// that is dead or cancelled gives an *EndedError. Retention keeps a succeeded source until this run has
// ended.
func (j ReturningJob[A, R]) ResultOf(ctx context.Context, run AnyRun, id RunID) (result R, err error) {
	outcomes, err := run.underWay().book().Outcomes(ctx, []RunID{id})
	switch {
	case err != nil:
		return result, fmt.Errorf("result of run %s: %w", id, err)
	case !outcomes[0].Found:
		return result, fmt.Errorf("result of run %s: %w", id, store.ErrNotFound)
	case !outcomes[0].State.Terminal():
		return result, fmt.Errorf("result of run %s: %w: it has not ended: it is %s", id, ErrConflict, outcomes[0].State)
	}
	record := Record{ID: id, Job: outcomes[0].Job, State: outcomes[0].State, Result: outcomes[0].Result}
	if outcomes[0].Reason != "" {
		record.Error = &outcomes[0].Reason
	}
	return j.typedResult(&record)
}
