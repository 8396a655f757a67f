package durable

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/durable-worker/durable-worker/store"
)

// ErrNoInput is the error of a Receive whose deadline has passed before an input came.
var ErrNoInput = errors.New("durable: no input came in time")

// Sender is what takes inputs: a Client, a Store, and a store bound to a transaction.
type Sender = store.Sender

// SendReceipt is the answer to one input.
type SendReceipt = store.SendReceipt

// Receive waits until an input of this name is sent to the run, by Job.Send, SQL, the command
// line, the API or a person on a page, and returns its value; the input may have come before.
// While it waits, the run has no slot and no lease: Receive returns an error, the park, as Sleep
// does. The deadline is stored at the first call, on the store's clock. When it passes first,
// Receive returns ErrNoInput, in every execution, and an input of this name is refused from then
// on. Timeout zero waits forever. A value that is no T is an error that the run's retry policy
// decides on.
func Receive[T any](ctx context.Context, run AnyRun, name string, timeout time.Duration) (T, error) {
	text, err := run.executing().stepping().receive(ctx, name, timeout)
	var value T
	if err != nil {
		return value, err
	}
	if err := json.Unmarshal(text, &value); err != nil {
		return value, fmt.Errorf("input %q is no %T: %w", name, value, err)
	}
	return value, nil
}

func (s *stepping) receive(ctx context.Context, name string, timeout time.Duration) ([]byte, error) {
	if timeout < 0 {
		return nil, fmt.Errorf("%w: receive %q: timeout %v: want 0 for none, or more", ErrInvalid, name, timeout)
	}
	known, err := s.begin(ctx, name, nil)
	if err != nil {
		return nil, err
	}
	input := s.input(name)
	if known == nil && input == nil {
		if known, input, err = s.beginWait(ctx, store.NewWait{Name: name, Kind: store.StepInput, For: timeout}); err != nil {
			return nil, err
		}
	}
	switch {
	case known != nil && known.Kind != store.StepInput:
		return nil, s.otherKind(name, known.Kind, store.StepInput)
	case input != nil:
		return s.received(*input)
	case known.Until.IsZero():
		return nil, s.park(ctx, &parkError{name: name, until: -1, input: true})
	}
	if left := s.left(known.Until); left > nearly {
		return nil, s.park(ctx, &parkError{name: name, until: s.x.w.config.Elapsed() + left, input: true})
	} else if left > 0 {
		s.x.w.sleep(ctx, left)
	}
	return s.giveUp(ctx, name)
}

// input returns the input of a name, as far as this execution knows.
func (s *stepping) input(name string) *store.Input {
	s.mu.Lock()
	defer s.mu.Unlock()
	if input, found := s.inputs[name]; found {
		return &input
	}
	return nil
}

// received is what an input gives to an execution.
func (s *stepping) received(input store.Input) ([]byte, error) {
	if input.GaveUp {
		return nil, fmt.Errorf("input %q: %w", input.Name, ErrNoInput)
	}
	value, err := s.x.unsealNamed(InputPart, input.Name, input.Value)
	if err != nil {
		return nil, fmt.Errorf("input %q: %w", input.Name, err)
	}
	return value, nil
}

// giveUp ends a wait whose deadline has passed.
func (s *stepping) giveUp(ctx context.Context, name string) ([]byte, error) {
	var input store.Input
	err := s.underClaim(ctx, "run.deadline_not_recorded", "recording that an input did not come in time failed, will be retried", func(ctx context.Context) (err error) {
		input, err = s.x.w.store.GiveUp(ctx, s.x.holder(), name)
		return err
	})
	if errors.Is(err, ErrConflict) { // a transaction that sends it is open: its end decides
		return nil, s.park(ctx, &parkError{name: name, until: s.x.w.config.Elapsed() + time.Second, input: true})
	}
	if err != nil {
		return nil, fmt.Errorf("receive %q: %w", name, err)
	}
	s.mu.Lock()
	s.inputs[name] = input
	s.mu.Unlock()
	return s.received(input)
}

// Send sends a value to a run of the job under a name, through a Client, a Store, or a store bound
// to your transaction, and makes the run due if it waits for it. The first value of a name stands:
// the same again is no error, another is ErrConflict, and so is one for a run that has ended or
// has given up waiting. A run that does not exist is ErrNotFound.
func (j Job[A]) Send(ctx context.Context, to Sender, id RunID, name string, value any) (SendReceipt, error) {
	return j.send(ctx, to, store.NewInput{Run: id, Name: name}, value)
}

// SendTo is Send to the unfinished run that holds a unique key of the job: who sends often knows
// the order, and not the run.
func (j Job[A]) SendTo(ctx context.Context, to Sender, key, name string, value any) (SendReceipt, error) {
	return j.send(ctx, to, store.NewInput{Job: j.name, Key: key, Name: name}, value)
}

func (j Job[A]) send(ctx context.Context, to Sender, input store.NewInput, value any) (SendReceipt, error) {
	if j.fault != nil {
		return SendReceipt{}, fmt.Errorf("%w: %w", ErrInvalid, j.fault)
	}
	clear, err := json.Marshal(value)
	if err != nil {
		return SendReceipt{}, fmt.Errorf("send %q: %w: %w", input.Name, ErrInvalid, err)
	}
	input.Digest = store.DigestOf(input.Name, clear)
	input.Value, err = seal(j.policy.codec, CodecInfo{Job: j.name, Part: InputPart, Run: input.Run, Name: input.Name}, clear)
	if err != nil {
		return SendReceipt{}, fmt.Errorf("send %q: %w: %w", input.Name, ErrInvalid, err)
	}
	return to.Send(ctx, input)
}

// Send is store.Sender. A call whose reply was lost is repeated, as by Enqueue; the first value of
// a name stands, so a repeat changes nothing.
func (c *Client) Send(ctx context.Context, input store.NewInput) (receipt SendReceipt, err error) {
	err = c.again(ctx, func(ctx context.Context) (err error) {
		receipt, err = c.store.Send(ctx, input)
		return err
	})
	return receipt, err
}
