package memory

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/durable-worker/durable-worker/internal/rules"
	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/store"
)

// sentInput is an input with the digest by which a repeat is recognised.
type sentInput struct {
	store.Input

	digest string
}

func (i *sentInput) copied() store.Input {
	input := i.Input
	input.Value = bytes.Clone(input.Value)
	return input
}

// notice says that an input may have to make its run due.
type notice struct {
	run   store.RunID
	name  string
	dueAt time.Time
	tries int
}

// input returns the input of a name, or nil.
func (r *run) input(name string) *sentInput {
	for i := range r.inputs {
		if r.inputs[i].Name == name {
			return &r.inputs[i]
		}
	}
	return nil
}

func (r *run) inputsOf() (inputs []store.Input) {
	for i := range r.inputs {
		inputs = append(inputs, r.inputs[i].copied())
	}
	return inputs
}

// GiveUp takes the place of an input that has not come.
func (s *Store) GiveUp(ctx context.Context, holder store.Holder, name string) (store.Input, error) {
	if err := ctx.Err(); err != nil {
		return store.Input{}, fmt.Errorf("give up waiting: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.verdict(holder.Run, holder.Claim) != store.Applied {
		return store.Input{}, fmt.Errorf("give up waiting: run %s: %w", holder.Run, lease.ErrLost)
	}
	r := s.runs[holder.Run]
	if r.input(name) == nil {
		r.inputs = append(r.inputs, sentInput{Input: store.Input{Name: name, At: s.now(), GaveUp: true}})
	}
	return r.input(name).copied(), nil
}

// Send stores an input, and releases its run.
func (s *Store) Send(ctx context.Context, input store.NewInput) (store.SendReceipt, error) {
	if err := ctx.Err(); err != nil {
		return store.SendReceipt{}, fmt.Errorf("send: %w", err)
	}
	if err := input.Check(); err != nil {
		return store.SendReceipt{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if input.Under != (store.Holder{}) && s.verdict(input.Under.Run, input.Under.Claim) != store.Applied {
		return store.SendReceipt{}, fmt.Errorf("send: run %s: %w", input.Under.Run, lease.ErrLost)
	}
	receipt, err := s.send(&input, s.now())
	if err == nil {
		s.hintIf(s.releaseNoticed(nil, s.now()).Released > 0)
	}
	return receipt, err
}

// send stores an input and its notice.
func (s *Store) send(input *store.NewInput, now time.Time) (receipt store.SendReceipt, err error) {
	if receipt.Run, err = s.addressee(input); err != nil {
		return receipt, err
	}
	r, found := s.runs[receipt.Run]
	if !found {
		return receipt, fmt.Errorf("run %s: %w", receipt.Run, store.ErrNotFound)
	}
	digest := input.Digest
	if digest == "" {
		digest = store.DigestOf(input.Name, input.Value)
	}
	sent := rules.SentInput{Run: r.id, Name: input.Name, Size: len(input.Value), State: r.state, Inputs: len(r.inputs)}
	for i := range r.inputs {
		sent.Bytes += len(r.inputs[i].Value)
	}
	known := r.input(input.Name)
	if known == nil && !r.state.Terminal() && sent.Inputs < store.MaxInputs && sent.Bytes+sent.Size <= store.MaxStepsSize {
		r.inputs = append(r.inputs, sentInput{store.Input{Name: input.Name, At: now, By: input.By, Value: bytes.Clone(input.Value)}, digest})
		s.notices = append(s.notices, notice{run: r.id, name: input.Name, dueAt: now})
		if input.By != "" {
			s.note(change{at: now, kind: rules.KindRun, subject: r.id.String(), what: store.SendsInput, by: input.By, detail: input.Detail()})
		}
		return receipt, nil
	}
	receipt.Existing = true
	if sent.Found = known != nil; sent.Found {
		sent.GaveUp, sent.Same = known.GaveUp, known.digest == digest
	}
	return receipt, rules.RefuseInput(sent)
}

// addressee finds the run that an input is for.
func (s *Store) addressee(input *store.NewInput) (store.RunID, error) {
	if input.Key == "" {
		return input.Run, nil
	}
	holder := s.keys[keyName{input.Job, input.Key}]
	if holder != nil {
		if r, stored := s.runs[holder.run]; stored && !r.state.Terminal() {
			return r.id, nil
		}
	}
	return uuid.Nil, fmt.Errorf("no unfinished run of job %s holds the key %q: %w", input.Job, input.Key, store.ErrNotFound)
}

// Release makes runs due whose inputs have come.
func (s *Store) Release(ctx context.Context, request store.ReleaseRequest) (store.ReleaseResult, error) {
	if err := ctx.Err(); err != nil {
		return store.ReleaseResult{Next: -1}, fmt.Errorf("release: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	result := s.releaseNoticed(request.Look, s.now())
	s.hintIf(result.Released+result.Ended > 0)
	return result, nil
}

// releaseNoticed looks at every notice that is due, and at the looks.
func (s *Store) releaseNoticed(looks []store.Look, now time.Time) store.ReleaseResult {
	result := store.ReleaseResult{Next: -1}
	var later []notice
	for _, n := range s.notices {
		r, found := s.runs[n.run]
		switch {
		case n.dueAt.After(now):
			later = append(later, n)
		case found && r.state == store.Running:
			n.dueAt = now.Add(rules.NoticePause(n.tries))
			n.tries++
			later = append(later, n)
			result.Taken++
		default:
			result.Taken++
			result.Released += s.releaseFor(r, n.name, now)
		}
	}
	s.notices = later
	for _, look := range looks {
		r := s.runs[look.Run]
		if r != nil && look.Kind == store.StepChildren { // it has begun to wait again
			r.came = slices.DeleteFunc(slices.Clone(r.came), func(name string) bool { return name == look.Name })
		}
		result.Released += s.releaseFor(r, look.Name, now)
	}
	released, ended := s.releaseLinked(now)
	result.Released, result.Ended = result.Released+released, ended
	for _, n := range s.notices {
		if in := n.dueAt.Sub(now); result.Next < 0 || in < result.Next {
			result.Next = max(in, 0)
		}
	}
	if in := s.batchTimer(now); in >= 0 && (result.Next < 0 || in < result.Next) {
		result.Next = in
	}
	return result
}

// releaseFor makes a run due that waits for an input which is there, and returns 1 if it did.
func (s *Store) releaseFor(r *run, name string, now time.Time) int {
	if r == nil || r.state != store.Pending || !r.dueAt.After(now) {
		return 0
	}
	step, input := r.step(name), r.input(name)
	if step == nil || step.Kind != store.StepInput || input == nil || input.GaveUp {
		return 0
	}
	s.makeDue(r, now)
	return 1
}

// RecordedStep returns a step as the transaction sees it.
func (t *Tx) RecordedStep(ctx context.Context, id store.RunID, name string) (store.StepRecord, bool, error) {
	if err := t.usable(ctx); err != nil {
		return store.StepRecord{}, false, fmt.Errorf("read step: %w", err)
	}
	t.store.mu.Lock()
	defer t.store.mu.Unlock()
	r, found := t.store.runs[id]
	if !found {
		return store.StepRecord{}, false, nil
	}
	c := *r
	c.steps = copiedSteps(r.steps)
	for i := range t.steps {
		if t.steps[i].Run == id {
			c.keepStep(&t.steps[i], t.store.now())
		}
	}
	if step := c.step(name); step != nil {
		return *step, true, nil
	}
	return store.StepRecord{}, false, nil
}

// RecordStep stores a step when the transaction is committed.
func (t *Tx) RecordStep(ctx context.Context, step store.NewStep) error {
	if err := step.Check(); err != nil {
		return err
	}
	if err := t.hold(ctx, step.Holder); err != nil {
		return fmt.Errorf("record step: %w", err)
	}
	known, found, err := t.RecordedStep(ctx, step.Run, step.Name)
	if err != nil {
		return err
	}
	if found && !known.Kind.IsReplaced() {
		return fmt.Errorf("record step: %w: step %q of run %s is stored already", store.ErrConflict, step.Name, step.Run)
	}
	step.Value = bytes.Clone(step.Value)
	t.steps = append(t.steps, step)
	return nil
}

// Send stores an input when the transaction is committed.
func (t *Tx) Send(ctx context.Context, input store.NewInput) (store.SendReceipt, error) {
	if err := t.usable(ctx); err != nil {
		return store.SendReceipt{}, fmt.Errorf("send: %w", err)
	}
	if err := input.Check(); err != nil {
		return store.SendReceipt{}, err
	}
	if input.Under != (store.Holder{}) {
		if err := t.hold(ctx, input.Under); err != nil {
			return store.SendReceipt{}, fmt.Errorf("send: %w", err)
		}
	}
	input.Value = bytes.Clone(input.Value)
	shadow := t.seen()
	shadow.notices = nil
	for i := range t.inputs {
		if _, err := shadow.send(&t.inputs[i], shadow.now()); err != nil {
			return store.SendReceipt{}, err
		}
	}
	receipt, err := shadow.send(&input, shadow.now())
	if err == nil && !receipt.Existing {
		input.Run, input.Key, input.Job = receipt.Run, "", ""
		t.inputs = append(t.inputs, input)
	}
	return receipt, err
}

// keepRecorded stores the steps and inputs of a transaction that is committed: none of them if
// one cannot be stored any more.
func (t *Tx) keepRecorded(now time.Time) error {
	s := t.store
	for i := range t.steps {
		if known := s.runs[t.steps[i].Run].step(t.steps[i].Name); known != nil && !known.Kind.IsReplaced() {
			return fmt.Errorf("commit: step %q of run %s was stored meanwhile: %w", t.steps[i].Name, t.steps[i].Run, store.ErrConflict)
		}
	}
	for i := range t.inputs {
		if r, found := s.runs[t.inputs[i].Run]; found && r.input(t.inputs[i].Name) != nil {
			return fmt.Errorf("commit: input %q of run %s was sent meanwhile: %w", t.inputs[i].Name, t.inputs[i].Run, store.ErrConflict)
		}
	}
	for i := range t.steps {
		s.runs[t.steps[i].Run].keepStep(&t.steps[i], now)
	}
	return nil
}

// sendAll stores the inputs of a transaction that is committed, and releases their runs. One for
// a run that has ended meanwhile goes with it.
func (t *Tx) sendAll(now time.Time) bool {
	for i := range t.inputs {
		_, _ = t.store.send(&t.inputs[i], now)
	}
	return len(t.inputs) > 0 && t.store.releaseNoticed(nil, now).Released > 0
}
