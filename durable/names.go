package durable

import (
	"errors"
	"time"

	"github.com/durable-worker/durable-worker/store"
)

// The words that code around handlers says daily. The rest of the vocabulary, and
// what the engines implement, is in package store.

type (
	// RunID names a run; it is created by NewRunID, ordered by time.
	RunID = store.RunID
	// State is the state of a run: Pending, Running, Succeeded, Dead or Cancelled.
	State = store.State
	// Record is everything that is stored of a run.
	Record = store.Record
	// Filter selects runs.
	Filter = store.Filter
	// Page is a part of a list of runs.
	Page = store.Page
	// Receipt is the answer to an enqueue.
	Receipt = store.Receipt
	// NewRun is a run that is not enqueued yet.
	NewRun = store.NewRun
	// Rule says when a schedule fires; created by Cron, Every or Once.
	Rule = store.Rule
	// Window is a time in which a schedule does not fire.
	Window = store.Window
	// RunInfo is a run that a worker is executing, without its args.
	RunInfo = store.RunInfo
	// JobInfo is a job as its workers have declared it.
	JobInfo = store.JobInfo
	// Store is what an engine implements.
	Store = store.Store
	// Tx is the caller's own transaction.
	Tx = store.Tx
	// Enqueuer is the part of a store that stores runs.
	Enqueuer = store.Enqueuer
	// EndedError says that a run has ended without success.
	EndedError = store.EndedError
)

// The states of a run. The last three are final.
const (
	Pending   = store.Pending
	Running   = store.Running
	Succeeded = store.Succeeded
	Dead      = store.Dead
	Cancelled = store.Cancelled
)

// KeepForever is a retention that never ends.
const KeepForever = store.KeepForever

// What happens to a run whose worker dies while executing it, for OnCrash.
const (
	CrashRetry = store.CrashRetry // execute it again, alone on a worker from the second crash on
	CrashDead  = store.CrashDead  // end it in dead immediately
)

// What happens to occurrences that no worker materialized in time, for CatchUp.
const (
	CatchUpSkip   = store.CatchUpSkip   // record them as missed
	CatchUpLatest = store.CatchUpLatest // the last one becomes a run
	CatchUpAll    = store.CatchUpAll    // all become runs, within the bounds
)

// What happens to an occurrence while earlier runs have not ended, for Overlap.
const (
	OverlapAllow = store.OverlapAllow // it becomes a run anyway
	OverlapSkip  = store.OverlapSkip  // record it as overlapping
	OverlapWait  = store.OverlapWait  // it becomes a run when the earlier one has ended
)

// NewRunID creates an id; later ids sort later.
func NewRunID() RunID { return store.NewRunID() }

// ParseRunID reads an id as its String writes it.
func ParseRunID(text string) (RunID, error) { return store.ParseRunID(text) }

// Cron is a rule that fires at the wall-clock times of a cron expression of five
// or six fields, or of a word such as @daily, in an IANA time zone ("" is UTC).
// See store.Cron for what happens when the clock is changed.
func Cron(expression, zone string) Rule { return store.Cron(expression, zone) }

// Every is a rule that fires at each multiple of d since 1970-01-01T00:00:00Z, at
// least one second.
func Every(d time.Duration) Rule { return store.Every(d) }

// Once is a rule that fires at one instant, or as soon after it as a worker runs,
// if it was declared before that instant.
func Once(t time.Time) Rule { return store.Once(t) }

// The errors of a store, matched with errors.Is.
var (
	ErrNotFound   = store.ErrNotFound   // there is no such run, or no such schedule
	ErrUnknownJob = store.ErrUnknownJob // no worker has declared a job of this name
	ErrInvalid    = store.ErrInvalid    // the input was refused before anything was stored; the text names all that is wrong
	ErrConflict   = store.ErrConflict   // what is stored does not allow the change
)

// The causes of a handler's context that has ended, for context.Cause.
var (
	ErrDraining  = errors.New("durable: worker is draining")         // the worker stops, and the time to finish is over
	ErrTimeout   = errors.New("durable: attempt timed out")          // the attempt has taken longer than the run's timeout
	ErrCancelled = errors.New("durable: run cancellation requested") // an operator has asked for it
)

// ErrNoInput is the error of a Receive whose deadline has passed before an input came.
var ErrNoInput = errors.New("durable: no input came in time")
