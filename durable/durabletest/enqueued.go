package durabletest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/durable-worker/durable-worker/durable"
)

// Source is what the assertions read: a store, or a store that is bound to a
// transaction, which sees what the transaction has enqueued before it commits.
type Source interface {
	// Runs lists runs by descending id, see store.Inspector.
	Runs(ctx context.Context, filter durable.Filter) (durable.Page, error)
}

// Found is a run that was enqueued, with its args decoded.
type Found[A any] struct {
	Args   A
	Record durable.Record // without its attempts
}

// Enqueued returns the runs of a job in the order of their ids, which is that
// in which one process has enqueued them, whatever has become of them since. It
// reads all of them: it is meant for the store of a test.
func Enqueued[A any](t testing.TB, from Source, job durable.Job[A]) []Found[A] {
	t.Helper()
	var found []Found[A]
	for _, record := range list(t, from, durable.Filter{Jobs: []string{job.Name()}}) {
		args, err := job.ArgsOf(record)
		if err != nil {
			t.Fatalf("args of run %s are not those of job %q: %v", record.ID, job.Name(), err)
		}
		found = append(found, Found[A]{Args: args, Record: record})
	}
	return found
}

// RequireEnqueued fails the test unless exactly one run of the job, in whatever
// state, satisfies every match, and returns it. When it fails it shows what is
// enqueued instead.
func RequireEnqueued[A any](t testing.TB, from Source, job durable.Job[A], match ...func(args A, record durable.Record) bool) Found[A] {
	t.Helper()
	found := matching(Enqueued(t, from, job), match)
	switch {
	case len(found) == 0:
		t.Fatalf("no run of job %q%s is enqueued; %s", job.Name(), thatMatches(match), instead(t, from))
	case len(found) > 1:
		t.Fatalf("%d runs of job %q%s are enqueued, want one (Enqueued returns them all):%s", len(found), job.Name(), thatMatches(match), lines(found))
	}
	return found[0]
}

// RequireNotEnqueued fails the test when a run of the job, in whatever state,
// satisfies every match.
func RequireNotEnqueued[A any](t testing.TB, from Source, job durable.Job[A], match ...func(args A, record durable.Record) bool) {
	t.Helper()
	if found := matching(Enqueued(t, from, job), match); len(found) > 0 {
		t.Fatalf("%d of job %q%s are enqueued, want none:%s", len(found), job.Name(), thatMatches(match), lines(found))
	}
}

// RequireState fails the test unless the run is in the state, and returns its
// record, without its attempts.
func RequireState(t testing.TB, from Source, id durable.RunID, state durable.State) durable.Record {
	t.Helper()
	page, err := from.Runs(context.WithoutCancel(t.Context()), durable.Filter{Before: after(id), Limit: 1})
	switch {
	case err != nil:
		t.Fatalf("runs: %v", err)
	case len(page.Runs) == 0 || page.Runs[0].ID != id:
		t.Fatalf("there is no run %s; %s", id, instead(t, from))
	case page.Runs[0].State != state:
		t.Fatalf("a run is %v, want %v:\n  %s", page.Runs[0].State, state, describe(&page.Runs[0]))
	}
	return page.Runs[0]
}

// after is the id that comes next.
func after(id durable.RunID) durable.RunID {
	for i := len(id) - 1; i >= 0; i-- {
		if id[i]++; id[i] != 0 {
			break
		}
	}
	return id
}

// list reads all runs of a filter, the first enqueued first.
func list(t testing.TB, from Source, filter durable.Filter) []durable.Record {
	t.Helper()
	var records []durable.Record
	for filter.Limit = 200; ; {
		page, err := from.Runs(context.WithoutCancel(t.Context()), filter)
		if err != nil {
			t.Fatalf("runs: %v", err)
		}
		records = append(records, page.Runs...)
		if filter.Before = page.Next; page.Next == (durable.RunID{}) {
			break
		}
	}
	slices.Reverse(records)
	return records
}

func matching[A any](found []Found[A], match []func(A, durable.Record) bool) []Found[A] {
	return slices.DeleteFunc(found, func(one Found[A]) bool {
		return slices.ContainsFunc(match, func(is func(A, durable.Record) bool) bool { return is != nil && !is(one.Args, one.Record) })
	})
}

func thatMatches[A any](match []func(A, durable.Record) bool) string {
	if len(match) == 0 {
		return ""
	}
	return " that matches"
}

// listed bounds the runs that a failure shows.
const listed = 20

func lines[A any](found []Found[A]) string {
	var text strings.Builder
	for i := range found[:min(len(found), listed)] {
		fmt.Fprintf(&text, "\n  %s", describe(&found[i].Record))
	}
	return text.String()
}

// instead shows the runs enqueued last.
func instead(t testing.TB, from Source) string {
	t.Helper()
	page, err := from.Runs(context.WithoutCancel(t.Context()), durable.Filter{Limit: listed})
	if err != nil {
		t.Fatalf("runs: %v", err)
	}
	if len(page.Runs) == 0 {
		return "nothing is"
	}
	var text strings.Builder
	text.WriteString("enqueued last are, newest first:")
	for i := range page.Runs {
		fmt.Fprintf(&text, "\n  %s", describe(&page.Runs[i]))
	}
	return text.String()
}

// describe describes a run in one line.
func describe(r *durable.Record) string {
	text := fmt.Sprintf("%s job=%s queue=%s %v attempt=%d/%d due=%s", r.ID, r.Job, r.Queue, r.State, r.Attempt, r.MaxAttempts,
		r.DueAt.UTC().Format(time.RFC3339Nano))
	if r.Worker != nil {
		text += " worker=" + *r.Worker
	}
	args := string(r.Args)
	if len(args) > 200 {
		args = strings.ToValidUTF8(args[:200], "") + "…"
	}
	text += " args=" + args
	if r.Error != nil {
		text += fmt.Sprintf(" error=%.200q", *r.Error)
	}
	return text
}
