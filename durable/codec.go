package durable

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/durable-worker/durable-worker/store"
)

// Codec encodes and decodes what a job stores, for encryption or compression. It
// belongs to the job (WithCodec), so it applies to every way in which a run is
// enqueued. Both methods are called concurrently, must be quick, and must neither
// change nor keep data.
//
// A run's tags, metadata, key, trace, progress note, log lines and the text of errors are not
// encoded.
type Codec interface {
	// Encode returns what is stored instead of data, which is JSON. What it
	// returns must be JSON too, such as an object with the key's name and the
	// ciphertext in base64, within the bounds of what may be stored.
	Encode(info CodecInfo, data []byte) ([]byte, error)
	// Decode is the reverse. When it fails in a worker, the run is retried without
	// spending an attempt, since a worker may have the missing key (see RetryArgsFor),
	// and after that time by policy until no attempt is left. It must refuse what was not
	// encoded with the same info, and its error must not contain the data.
	Decode(info CodecInfo, data []byte) ([]byte, error)
}

// CodecInfo says what is encoded. A codec that encrypts binds all of it to the
// ciphertext (as additional data), so that nothing can be put in another's place.
type CodecInfo struct {
	Job  string // the name under which the run is stored; see Alias
	Part CodecPart
	// Run is the run's ID. It is the zero RunID for the args of a schedule,
	// which are stored once for all its runs, and for those of a run that may
	// replace another one's (Replace, Debounce): these can be put in place of
	// the args of another run of the job, and nothing else can.
	Run RunID
	// Name is that of the step or the input; empty for other parts.
	Name string
}

// CodecPart names a part of a run that is encoded.
type CodecPart string

// The parts of a run that are encoded.
const (
	ArgsPart       CodecPart = "args"
	ResultPart     CodecPart = "result"
	CheckpointPart CodecPart = "checkpoint"
	StepPart       CodecPart = "step"  // the result of a step
	InputPart      CodecPart = "input" // a value that Job.Send sends
)

// WithCodec encodes the args, results and checkpoints of the job's runs before
// they are stored, and decodes them for the handler. Args that were created
// without the Job's value (by RunOf, on the command line, in SQL) are stored as
// they are; Decode has to refuse them. To read runs use Job.ArgsOf and
// Job.ResultOf.
func WithCodec(c Codec) Option {
	if c == nil {
		return Option{} // refused as empty: a nil codec must not store plain text
	}
	return Option{"WithCodec", onlyJob, func(p *policy) { p.codec = c }}
}

// Redacted hides values of the args, results, checkpoints, steps and inputs of the job's runs
// from all who read through the commands, the API and the pages: they see a mask. Paths are members
// separated by dots, such as card.number, in any case; * is any member, and ** before the
// rest any depth. What is stored, and what handlers get, stays as it is. Workers declare it with the
// job, so it also holds in programs that do not have this code.
func Redacted(paths ...string) Option {
	return Option{"Redacted", onlyJob, func(p *policy) { p.redacted = slices.Concat(p.redacted, paths) }}
}

// sharedName marks what is encoded for no run in particular. Decoding must know
// that, and the mark lets it: a ciphertext that is bound to a run does not
// become valid by it.
const sharedName = "durable:shared"

// wrap puts the mark around JSON, which stays as it is.
func wrap(text []byte) []byte {
	return slices.Concat([]byte(`{"`+sharedName+`":`), text, []byte("}"))
}

// seal encodes data for the store. Its error begins with the part.
func seal(c Codec, info CodecInfo, data []byte) ([]byte, error) {
	if c == nil {
		return data, nil
	}
	if err := store.CheckJSON(data); err != nil {
		return nil, fmt.Errorf("%s%w", info.Part, err)
	}
	text, err := c.Encode(info, data)
	if err != nil {
		return nil, fmt.Errorf("encode %s: %w", info.Part, err)
	}
	if _, is := unwrap(text); is {
		return nil, fmt.Errorf("%s: the codec's output must not be an object whose only name is %s", info.Part, sharedName)
	}
	if err := store.CheckJSON(text); err != nil {
		return nil, fmt.Errorf("encoded %s%w", info.Part, err)
	}
	if info.Run != (RunID{}) {
		return slices.Clone(text), nil
	}
	return wrap(text), nil
}

// unseal decodes what seal has encoded.
func unseal(c Codec, info CodecInfo, text []byte) ([]byte, error) {
	if c == nil {
		return text, nil
	}
	if inner, is := unwrap(text); is {
		text, info.Run = inner, RunID{}
	}
	data, err := c.Decode(info, text)
	if err != nil {
		return nil, fmt.Errorf("decode %s: %w", info.Part, err)
	}
	return data, nil
}

// unwrap returns what is inside a mark, if there is one.
func unwrap(text []byte) ([]byte, bool) {
	if !bytes.Contains(text, []byte(sharedName)) {
		return nil, false
	}
	var outer map[string]json.RawMessage
	if err := json.Unmarshal(text, &outer); err != nil || len(outer) != 1 {
		return nil, false
	}
	inner, is := outer[sharedName]
	return inner, is
}

// plainArgs stand for the args of a schedule in its hash. They are marked, so a
// job that is given a codec has its schedules stored again.
func plainArgs(args any) ([]byte, error) {
	encoded, err := json.Marshal(args)
	if err != nil {
		return nil, err
	}
	return wrap(encoded), nil
}

// misfit returns why args cannot be decoded. It does not quote the args, as the decoder's error
// may, because a person who may see errors may not be allowed to see all args.
func misfit[A any](err error) error {
	if mismatch, is := errors.AsType[*json.UnmarshalTypeError](err); is {
		kind, _, _ := strings.Cut(mismatch.Value, " ") // a number is quoted after it
		return fmt.Errorf("decode args: field %q holds a %s, want %v", mismatch.Field, kind, mismatch.Type)
	}
	var args A
	return fmt.Errorf("decode args: they do not fit %T", args)
}

// counted makes an error a failed attempt.
func counted(err error) error { return err }

const (
	misfitPauseLeast = time.Second
	misfitPauseMost  = 30 * time.Second
	// misfitTries bounds how often args are tried within a long time.
	misfitTries = 30
	// argsFailed begins each error that says that args could not be read, also those of codecs.
	argsFailed = "decode args: "
)

// turnAway ends an execution whose args could not be read, which err says: another program is to
// take the run, as long as there may be one. after is the outcome when that time is over.
func (x *execution) turnAway(ctx context.Context, m misfits, err error, after func(error) error) error {
	if m.within == 0 {
		return after(err)
	}
	since := x.misfitSince(ctx)
	left := m.within - since
	if left <= 0 {
		return after(fmt.Errorf("%w (retried for %v)", err, m.within))
	}
	most := max(misfitPauseMost, m.within/misfitTries)
	pause := min(max(since/4, misfitPauseLeast), most)
	return &endingError{kind: store.Misfit, after: min(time.Duration(float64(pause)*(0.9+0.2*x.w.config.Random())), left), err: err}
}

// misfitSince is how long before this execution the args did not fit for the first time, on the
// store's clock. If that cannot be read, it is zero.
func (x *execution) misfitSince(ctx context.Context) time.Duration {
	ctx, cancel := context.WithTimeout(ctx, x.w.callTimeout())
	defer cancel()
	record, err := x.w.store.Run(ctx, x.run.ID)
	if err != nil || record.StartedAt == nil {
		return 0
	}
	first := *record.StartedAt
	for i := len(record.Attempts) - 1; i >= 0 && unread(&record.Attempts[i]); i-- {
		if a := &record.Attempts[i]; a.Outcome == store.Misfit {
			first = a.StartedAt
		}
	}
	return max(record.StartedAt.Sub(first), 0)
}

// unread reports whether an execution ended before its args were read.
func unread(a *store.Attempt) bool {
	switch a.Outcome {
	case store.Misfit, store.Crash:
		return true
	case store.Failure:
		return a.Error != nil && strings.HasPrefix(*a.Error, argsFailed)
	default:
		return false
	}
}

// ArgsOf returns the args of a run of this job, decoded by the job's codec. It
// refuses a run of another job with ErrInvalid.
func (j Job[A]) ArgsOf(record Record) (A, error) {
	var decoded A
	args, err := j.open(record, ArgsPart, record.Args)
	if err != nil {
		return decoded, err
	}
	if err := json.Unmarshal(args, &decoded); err != nil {
		return decoded, misfit[A](err)
	}
	return decoded, nil
}

// ResultOf returns the result of a run of this job as JSON, decoded by the
// job's codec; nil when the run has none. It refuses a run of another job with
// ErrInvalid.
func (j Job[A]) ResultOf(record Record) (json.RawMessage, error) {
	if len(record.Result) == 0 {
		return nil, nil
	}
	return j.open(record, ResultPart, record.Result)
}

// open decodes a part of a stored run.
func (j Job[A]) open(record Record, part CodecPart, text []byte) ([]byte, error) {
	if record.Job != j.name && !slices.Contains(j.policy.aliases, record.Job) {
		return nil, fmt.Errorf("%w: run %s is of job %q, not %q", ErrInvalid, record.ID, record.Job, j.name)
	}
	return unseal(j.policy.codec, CodecInfo{Job: record.Job, Part: part, Run: record.ID}, text)
}

// seal encodes a part of the run for the store.
func (x *execution) seal(part CodecPart, data []byte) ([]byte, error) {
	return seal(x.codec, CodecInfo{Job: x.job, Part: part, Run: x.run.ID}, data)
}

// unseal decodes a part of the run.
func (x *execution) unseal(part CodecPart, text []byte) ([]byte, error) {
	return unseal(x.codec, CodecInfo{Job: x.job, Part: part, Run: x.run.ID}, text)
}

// Returning ties the type of a job's results to the job, so that the code that reads them
// cannot use another type:
//
//	var Resize = durable.Returning[Size](durable.NewJob[ResizeArgs]("resize"))
//
// Register it with RegisterReturning, whose handler returns the result, and read with
// Await and Poll.
func Returning[R, A any](job Job[A]) ReturningJob[A, R] { return ReturningJob[A, R]{Job: job} }

// ReturningJob is a Job whose handlers return a value. Returning creates one.
type ReturningJob[A, R any] struct{ Job[A] }

// Await is Result for the job's type, decoded by its codec. A run of another job is
// ErrInvalid.
func (j ReturningJob[A, R]) Await(ctx context.Context, client *Client, id RunID) (R, error) {
	records, err := client.Wait(ctx, id)
	if err != nil {
		var none R
		return none, err
	}
	return j.typedResult(&records[0])
}

// Poll reads the result without waiting. ended is false as long as the run has not
// ended. The errors are those of Await.
func (j ReturningJob[A, R]) Poll(ctx context.Context, client *Client, id RunID) (result R, ended bool, err error) {
	record, err := client.store.Run(ctx, id)
	if err != nil || !record.State.Terminal() {
		return result, false, err
	}
	result, err = j.typedResult(&record)
	return result, true, err
}

func (j ReturningJob[A, R]) typedResult(record *Record) (result R, err error) {
	text, err := j.open(*record, ResultPart, record.Result)
	if len(record.Result) == 0 && !errors.Is(err, ErrInvalid) {
		text, err = nil, nil // there is nothing to decode
	}
	if err != nil {
		return result, err
	}
	if err := record.Ended(); err != nil {
		return result, err
	}
	return decodeResult[R](record.ID, text)
}

// sealNamed encodes a step or an input of the run for the store.
func (x *execution) sealNamed(part CodecPart, name string, data []byte) ([]byte, error) {
	return seal(x.codec, CodecInfo{Job: x.job, Part: part, Run: x.run.ID, Name: name}, data)
}

// unsealNamed decodes a step or an input of the run.
func (x *execution) unsealNamed(part CodecPart, name string, text []byte) ([]byte, error) {
	return unseal(x.codec, CodecInfo{Job: x.job, Part: part, Run: x.run.ID, Name: name}, text)
}
