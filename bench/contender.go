package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// contender is one framework under measurement, used through its public API.
type contender interface {
	// prepare makes the schema in an empty target.
	prepare(ctx context.Context, target string) error
	// enqueuer connects what enqueues.
	enqueuer(ctx context.Context, s spec) (*enqueuer, error)
	// worker connects what works; handled is called by every execution.
	worker(ctx context.Context, s spec, handled func(n int64)) (*worker, error)
	// unsettled tells, once every handler has returned, whether something is
	// still to be written; cheaply, for it is asked while the clock runs.
	unsettled(ctx context.Context, w *watch) (bool, error)
	// finished counts what has ended well, exactly.
	finished(ctx context.Context, w *watch) (int, error)
}

// enqueuer takes a number for each run and returns when all are stored.
type enqueuer struct {
	enqueue func(ctx context.Context, numbers []int64) error
	close   func()
}

// worker is connected and waits for its start. stop drains.
type worker struct {
	start func() error
	stop  func()
}

// Names of the contenders.
const (
	ours  = "durable"
	river = "river"
	redis = "asynq"
)

func contenderOf(name string) (contender, error) {
	switch name {
	case ours:
		return durableContender{}, nil
	case river:
		return riverContender{}, nil
	case redis:
		return asynqContender{}, nil
	default:
		return nil, fmt.Errorf("no contender is called %q", name)
	}
}

// spec tells a child process, or the enqueuing side of this one, what to do.
// The zero value of the settings means the contender's own default.
type spec struct {
	Contender string `json:"contender"`
	Role      role   `json:"role"`
	Target    string `json:"target"`
	Counters  string `json:"counters"` // file of shared counters
	Slot      int    `json:"slot"`     // ours in it
	Watched   bool   `json:"watched"`  // someone looks at the pages of this worker
	Profile   string `json:"profile"`  // file for a CPU profile; empty: none

	// Of a worker.
	Concurrency int           `json:"concurrency"` // handlers that execute concurrently
	Cooldown    time.Duration `json:"cooldown"`    // between fetches, where the contender has one
	PollOnly    bool          `json:"poll_only"`
	Poll        time.Duration `json:"poll"`    // between looks
	Latency     bool          `json:"latency"` // the run's number is when it was enqueued
	Sweep       time.Duration `json:"sweep"`   // between looks for runs to delete; durable only
	Lease       time.Duration `json:"lease"`   // how long a claim lasts without a beat; durable only
	ClaimBytes  int           `json:"claim_bytes"`
	Hang        bool          `json:"hang"`      // handlers do not return
	Lanes       int           `json:"lanes"`     // so many jobs instead of one, also of an enqueuer; durable only
	Keys        int           `json:"keys"`      // of a limit of 1000 places each that the runs are under; zero: no limit; also of an enqueuer; durable only
	Retried     bool          `json:"retried"`   // one run in ten fails once, and is due again after retriedAfter
	Busy        time.Duration `json:"busy"`      // how long a handler takes
	Workers     int           `json:"workers"`   // so many instead of one, each with connections of its own
	Flow        flow          `json:"flow"`      // what handlers do; durable only
	Collector   string        `json:"collector"` // URL; not empty: all that operating offers is switched on, see operated; durable only

	// Of an enqueuer.
	Total   int    `json:"total"` // runs; zero: until it is stopped
	Batch   int    `json:"batch"` // runs in one call
	Backlog int    `json:"backlog"`
	Fast    bool   `json:"fast"`    // the call that answers no ids, where the contender has one
	Job     string `json:"job"`     // empty: the one that is worked
	Future  bool   `json:"future"`  // due in an hour, at the highest priority
	Unique  bool   `json:"unique"`  // with a key of its own each
	Within  bool   `json:"within"`  // a transaction of the caller's
	Delayed bool   `json:"delayed"` // due after delayedBy
}

const (
	delayedBy    = 2 * time.Second
	retriedAfter = 2 * time.Second
	retriedOne   = 10 // in so many
)

// fails reports whether this attempt of a run is one that fails, in a fleet whose runs are
// retried.
func (s spec) fails(number int64, attempt int) bool {
	return s.Retried && attempt == 1 && number/int64(time.Microsecond)%retriedOne == 0
}

var errOnce = errors.New("failed once")

type role string

const (
	working   role = "work"
	enqueuing role = "enqueue"
)

// args are the run's: 14 bytes of JSON when the number has eight digits.
type args struct {
	N int64 `json:"n"`
}

// Kind is River's name of the job.
func (args) Kind() string { return jobName }

const jobName = "bench"

// firstNumber has eight digits.
const firstNumber = 10_000_000

func (a args) json() []byte {
	text, err := json.Marshal(a)
	if err != nil {
		panic(err) // an integer is always JSON
	}
	return text
}

// numbers are n numbers from the first-th on.
func numbers(first, n int) []int64 {
	list := make([]int64, n)
	for i := range list {
		list[i] = int64(firstNumber + first + i)
	}
	return list
}
