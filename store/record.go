package store

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/google/uuid"

	"github.com/durable-worker/durable-worker/lease"
)

// RunID identifies a run: a version 7 UUID that the client creates before it
// enqueues, so that a repeated enqueue is recognised. The time in it decides
// nothing.
type RunID = uuid.UUID

// NewRunID returns a fresh identity for a run. Those of one process rise.
func NewRunID() RunID { return uuid.Must(uuid.NewV7FromReader(quickRandom{})) }

// quickRandom reads the runtime's generator, which asks the system for nothing
// but its seed. An id has to be unique, not secret.
type quickRandom struct{}

// Read fills p.
func (quickRandom) Read(p []byte) (int, error) {
	var word [8]byte
	for i := 0; i < len(p); i += len(word) {
		binary.LittleEndian.PutUint64(word[:], rand.Uint64()) //nolint:gosec // see above
		copy(p[i:], word[:])
	}
	return len(p), nil
}

// ParseRunID reads the textual form of a RunID.
func ParseRunID(text string) (RunID, error) {
	id, err := uuid.Parse(text)
	if err != nil || len(text) != 36 {
		return RunID{}, fmt.Errorf("%q is not a run id (a UUID such as 0190c5a0-7d6c-7b0e-9f6e-3a1f4b2c5d6e)", text)
	}
	return id, nil
}

// State is where a run is in its life. "Scheduled" and "retrying" are pending
// with a later due time.
type State int16

// The states. The numbers are stored.
const (
	Pending   State = 0
	Running   State = 1
	Succeeded State = 2
	Dead      State = 4
	Cancelled State = 5
)

// States lists every state in the order of a run's life.
func States() []State { return []State{Pending, Running, Succeeded, Dead, Cancelled} }

var stateNames = map[State]string{ //nolint:gochecknoglobals // a constant table
	Pending: "pending", Running: "running", Succeeded: "succeeded", Dead: "dead", Cancelled: "cancelled",
}

// String returns the state's word.
func (s State) String() string {
	if name, ok := stateNames[s]; ok {
		return name
	}
	return fmt.Sprintf("state(%d)", int16(s))
}

// Terminal reports whether a run in this state is finished for good.
func (s State) Terminal() bool { return s >= Succeeded }

// MarshalText writes the state's word.
func (s State) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText reads the state's word.
func (s *State) UnmarshalText(text []byte) (err error) {
	*s, err = ParseState(string(text))
	return err
}

// ParseState reads a state's word.
func ParseState(text string) (State, error) {
	for _, s := range States() {
		if s.String() == text {
			return s, nil
		}
	}
	return 0, fmt.Errorf("%q is not a state (pending, running, succeeded, dead, cancelled)", text)
}

// Record is a run as stored. Times are UTC with microseconds.
type Record struct {
	ID          RunID           `json:"id"`
	Job         string          `json:"job"`
	Queue       string          `json:"queue"`
	State       State           `json:"state"`
	Attempt     int             `json:"attempt"` // attempts charged, the one under way included
	MaxAttempts int             `json:"max_attempts"`
	CrashCount  int             `json:"crash_count"` // workers that died while they held it
	Isolated    bool            `json:"isolated"`    // executed alone from now on, see the crash rule in the guide
	Priority    int             `json:"priority"`
	DueAt       time.Time       `json:"due_at"`
	CreatedAt   time.Time       `json:"created_at"`
	StartedAt   *time.Time      `json:"started_at"`  // of the last execution
	FinishedAt  *time.Time      `json:"finished_at"` // set when the state is terminal
	ExpiresAt   *time.Time      `json:"expires_at"`
	Timeout     Duration        `json:"timeout"` // of one attempt; zero means none
	Worker      *string         `json:"worker"`  // name of the worker that has it, or had it last
	Fence       lease.Fence     `json:"fence"`
	Schedule    *string         `json:"schedule"`   // the schedule it is an occurrence of
	Occurrence  *time.Time      `json:"occurrence"` // the instant of the schedule that it is for, at the offset of the schedule's zone and under its name; see RunInfo.Occurrence
	Key         *string         `json:"key"`        // it was enqueued with; another run may hold it by now
	Tags        []string        `json:"tags"`
	Metadata    Metadata        `json:"metadata,omitempty"`
	Limits      []string        `json:"limits,omitempty"` // of the run, each as LimitUse.String writes it
	Args        json.RawMessage `json:"args"`
	Result      json.RawMessage `json:"result"`
	Error       *string         `json:"error"`      // why it is dead or cancelled, else of the last failed or crashed attempt; nil when it succeeded
	Progress    *Progress       `json:"progress"`   // what its handler last reported; nil: nothing
	Checkpoint  json.RawMessage `json:"checkpoint"` // the last one; a list does not read it
	Attempts    []Attempt       `json:"attempts"`
	Hidden      *Hidden         `json:"hidden,omitempty"` // what readers are not shown; nil: nothing. Stores leave it nil
}

// Hidden says how many bytes of each part are left out for those who may not see them.
type Hidden struct {
	Args       int `json:"args"`
	Result     int `json:"result"`
	Checkpoint int `json:"checkpoint"`
	Texts      int `json:"texts,omitempty"` // errors, stacks, log lines, notes
}

// Attempt is one ended execution of a run. A crash is listed with the number
// of the attempt it interrupted, which is refunded.
type Attempt struct {
	Number    int         `json:"number"`
	Outcome   OutcomeKind `json:"outcome"`
	Worker    string      `json:"worker"`
	Fence     lease.Fence `json:"fence"`
	StartedAt time.Time   `json:"started_at"`
	EndedAt   time.Time   `json:"ended_at"` // the handler has returned; of a crash: it was noticed
	Error     *string     `json:"error"`
	Stack     *string     `json:"stack"`
	Log       *string     `json:"log"` // lines that the handler logged
}

// Duration is a time.Duration written in JSON as Go writes it ("1m30s").
type Duration time.Duration

// MarshalText writes the duration as Go does.
func (d Duration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

// UnmarshalText reads a duration as Go writes it.
func (d *Duration) UnmarshalText(text []byte) error {
	v, err := time.ParseDuration(string(text))
	*d = Duration(v)
	return err
}

// EndedError says that a run has ended without success.
type EndedError struct {
	ID     RunID
	State  State  // Dead or Cancelled
	Reason string // as in the run's record
}

// Error names the run, its state and the reason.
func (e *EndedError) Error() string {
	if e.Reason == "" {
		return fmt.Sprintf("run %s is %v", e.ID, e.State)
	}
	return fmt.Sprintf("run %s is %v: %s", e.ID, e.State, e.Reason)
}

// Ended returns an *EndedError when the run is dead or cancelled.
func (r *Record) Ended() error {
	if r.State != Dead && r.State != Cancelled {
		return nil
	}
	e := &EndedError{ID: r.ID, State: r.State}
	if r.Error != nil {
		e.Reason = *r.Error
	}
	return e
}

// Bounds of the lines of an attempt that are kept; the latest are.
const (
	MaxLogLines = 200
	MaxLogSize  = 16 << 10 // bytes of all of them
)
