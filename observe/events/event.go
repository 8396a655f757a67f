package events

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/durable-worker/durable-worker/store"
)

// Schema is the version of the JSON of an Event. Within a version members and kinds are
// only added.
const Schema = 1

// Kind says what has happened.
type Kind string

// The kinds. More may come.
const (
	RunEnqueued   Kind = "run.enqueued"    // sent by this process, also a run that was there already
	RunStarted    Kind = "run.started"     // an attempt begins
	RunSucceeded  Kind = "run.succeeded"   //
	RunRetried    Kind = "run.retried"     // the attempt has failed, and the run is tried again
	RunSnoozed    Kind = "run.snoozed"     // the handler has asked for later
	RunParked     Kind = "run.parked"      // the run is put back because it sleeps or waits, or tries a step again
	RunDead       Kind = "run.dead"        // after its last attempt, by its handler's decision, or by a crash
	RunCancelled  Kind = "run.cancelled"   // by its handler, or on request while it was executing
	RunHandedBack Kind = "run.handed_back" // the worker stops, and has returned it unfinished
	RunReclaimed  Kind = "run.reclaimed"   // from a worker that has lost it
	RunLost       Kind = "run.lost"        // this worker's lease was lost while the handler was executing
	RunStuck      Kind = "run.stuck"       // the handler ignores that its context has ended
	RunRefused    Kind = "run.refused"     // an outcome came too late: another worker has the run

	OperatorChanged Kind = "operator.changed" // an operator, or a program for one, has changed something

	WorkerStarted   Kind = "worker.started"
	WorkerHeartbeat Kind = "worker.heartbeat"
	WorkerStopped   Kind = "worker.stopped"
)

// Kinds are all kinds.
func Kinds() []Kind {
	return []Kind{RunEnqueued, RunStarted, RunSucceeded, RunRetried, RunSnoozed, RunParked, RunDead, RunCancelled, RunHandedBack,
		RunReclaimed, RunLost, RunStuck, RunRefused, OperatorChanged, WorkerStarted, WorkerHeartbeat, WorkerStopped}
}

// ParseKinds reads kinds that commas separate: names, run.*, operator.* or worker.*, or all.
func ParseKinds(text string) ([]Kind, error) {
	var found []Kind
	for part := range strings.SplitSeq(text, ",") {
		part = strings.TrimSpace(part)
		prefix, many := strings.CutSuffix(part, "*")
		before := len(found)
		for _, one := range Kinds() {
			if string(one) == part || part == "all" || many && strings.HasSuffix(prefix, ".") && strings.HasPrefix(string(one), prefix) {
				found = append(found, one)
			}
		}
		if len(found) == before {
			return nil, fmt.Errorf("%q is not a kind of events", part)
		}
	}
	slices.Sort(found)
	return slices.Compact(found), nil
}

// Event is one thing that has happened.
type Event struct {
	Schema int       `json:"schema"`
	ID     uuid.UUID `json:"id"` // the same when the event is sent again
	Kind   Kind      `json:"type"`
	At     time.Time `json:"at"`     // on the clock of the machine that reports it
	Worker string    `json:"worker"` // that reports it; empty: a client
	Run    *Run      `json:"run"`    // nil: the event is not about a run
	State  *State    `json:"state"`  // of the worker; nil: the event is not about a worker
	Change *Change   `json:"change"` // nil: the event is not about a change
}

// Change is what an operator has changed, with the words of the audit log.
type Change struct {
	Kind    string  `json:"kind"`    // run, bulk (all runs of a filter), queue, schedule, limit or lock
	Subject string  `json:"subject"` // its id, or its name
	Action  string  `json:"action"`
	By      string  `json:"by"`
	Reason  *string `json:"reason"` // that was given; nil: none
	Runs    int64   `json:"runs"`   // of a bulk change: how many it has changed
}

// Run is the run of an Event, without args, result, key and metadata.
type Run struct {
	ID          store.RunID     `json:"id"`
	Job         string          `json:"job"`
	Queue       string          `json:"queue"`
	Attempt     int             `json:"attempt"` // zero: not known
	MaxAttempts int             `json:"max_attempts"`
	CrashCount  int             `json:"crash_count"`
	Tags        []string        `json:"tags"`
	Schedule    *string         `json:"schedule"`
	Trace       *string         `json:"trace"` // of the code that enqueued it
	DueAt       *time.Time      `json:"due_at"`
	CreatedAt   *time.Time      `json:"created_at"`
	Took        *store.Duration `json:"took"`       // by the handler
	RetryAt     *time.Time      `json:"retry_at"`   // of RunRetried, RunSnoozed and RunParked, about
	ErrorType   *string         `json:"error_type"` // such as *net.OpError
	Error       *string         `json:"error"`      // its text, only if Config.Errors allows it
	Crash       bool            `json:"crash"`      // a worker has crashed, or was cut off: the attempt has no end of its own
	LostBy      *string         `json:"lost_by"`    // that worker
	Waits       []Wait          `json:"waits"`      // of RunParked, at most 20; nil: none
}

// Wait is one of the waits because of which a run is put back.
type Wait struct {
	Step  string         `json:"step"`  // its name
	Kind  store.StepKind `json:"kind"`  // sleep, input, children, or tried: a step that is tried again
	Until *time.Time     `json:"until"` // when it ends by itself, about; nil: it does not
}

// waitsMost bounds the waits of one event.
const waitsMost = 20

// State is how a worker is doing.
type State struct {
	Version   string `json:"version"`
	Ready     bool   `json:"ready"`
	Executing int    `json:"executing"`
	Capacity  int    `json:"capacity"`
	Stuck     int    `json:"stuck"`
}

// errorMost bounds the text of an error, bytes.
const errorMost = 4096

// size is about how many bytes an event keeps while it waits.
func (e *Event) size() int {
	n := 300
	if r := e.Run; r != nil {
		n += 400 + len(r.Job) + len(r.Queue)
		for _, tag := range r.Tags {
			n += len(tag)
		}
		for i := range r.Waits {
			n += 50 + len(r.Waits[i].Step)
		}
		for _, text := range []*string{r.Error, r.ErrorType, r.Trace, r.Schedule, r.LostBy} {
			if text != nil {
				n += len(*text)
			}
		}
	}
	if c := e.Change; c != nil {
		n += 100 + len(c.Subject) + len(c.Action) + len(c.By)
		if c.Reason != nil {
			n += len(*c.Reason)
		}
	}
	return n
}

// some is a text, or nil without one.
func some(text string) *string {
	if text == "" {
		return nil
	}
	return &text
}

// when is an instant, or nil without one.
func when(at time.Time) *time.Time {
	if at.IsZero() {
		return nil
	}
	return &at
}

// errorType names the type of what an error wraps.
func errorType(err error) string {
	for err != nil {
		wraps, ok := err.(interface{ Unwrap() error }) //nolint:errorlint // it walks the chain
		if !ok || wraps.Unwrap() == nil {
			return reflect.TypeOf(err).String()
		}
		err = wraps.Unwrap()
	}
	return ""
}
