package storetest

import (
	"maps"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/durable-worker/durable-worker/store"
)

// ruleTests are the rules that internal/rules decides, or the SQL of a store, each
// as a table with every combination of what it depends on.
func ruleTests() map[string]func(*testing.T, *fixture) {
	return map[string]func(*testing.T, *fixture){
		"what each outcome makes of a run":                         settleRule,
		"what an operator's action makes of a run in each state":   operateRule,
		"which run gives a unique key back to one that is retried": regainRule,
		"how long an ended run is kept":                            retentionRule,
		"which declaration of a schedule counts":                   supersedeRule,
		"which changes of a schedule leave its times the same":     timesRule,
		"the audit's words for schedules, queues and reruns":       auditRule,
	}
}

// settleTable is what an outcome makes of a run, whether the run was asked to be
// cancelled and whether the handler has logged lines. "*" is yes and no. due is
// when a pending run is: immediately, or after the time the outcome says, which is
// never before now. why is the error that the record shows: the outcome's or the
// one of the request.
const settleTable = `
outcome     cancel log  state     charged recorded  due   why
success     *      *    succeeded 1       success   -     -
failure     no     *    pending   1       failure   after boom
failure     yes    *    cancelled 1       failure   -     asked
dead        *      *    dead      1       dead      -     boom
cancelled   *      *    cancelled 1       cancelled -     boom
snoozed     no     *    pending   0       -         after -
snoozed     yes    *    cancelled 0       -         -     asked
handed_back no    *    pending   0       -         now   -
handed_back yes   *    cancelled 0       -         -     asked
`

// expand makes a row of each value that "*" means.
func expand(all []map[string]string) (expanded []map[string]string) {
	for _, row := range all {
		todo := []map[string]string{{}}
		for key, word := range row {
			words := []string{word}
			if word == "*" {
				words = []string{"yes", "no"}
			}
			var more []map[string]string
			for _, one := range todo {
				for _, word := range words {
					more = append(more, widened(one, key, word))
				}
			}
			todo = more
		}
		expanded = append(expanded, todo...)
	}
	return expanded
}

// widened is a row with one word more.
func widened(row map[string]string, key, word string) map[string]string {
	more := maps.Clone(row)
	more[key] = word
	return more
}

func settleRule(t *testing.T, f *fixture) {
	all := expand(rows(t, settleTable))
	if len(all) != 6*2*2 {
		t.Fatalf("%d combinations", len(all))
	}
	for _, row := range all {
		for _, after := range []time.Duration{-time.Hour, 0, time.Hour} {
			f.settleRow(row, after)
		}
	}
}

// settleRow settles a run as a row of the table says.
func (f *fixture) settleRow(row map[string]string, after time.Duration) {
	f.t.Helper()
	worker := newWorker("w1")
	f.enqueue(newRun())
	claim, run := f.claimOne(worker)
	if row["cancel"] == "yes" {
		f.operate(store.CancelRuns, run.ID)
	}
	outcome := store.Outcome{After: after}
	if err := outcome.Kind.UnmarshalText([]byte(strings.ReplaceAll(row["outcome"], "_", " "))); err != nil {
		f.t.Fatal(err)
	}
	if outcome.Kind == store.Failure || outcome.Kind == store.Death || outcome.Kind == store.Cancellation {
		outcome.Error = "boom"
	}
	if row["log"] == "yes" {
		outcome.Log = "a line"
	}
	if got := f.settle(one(claim, worker, run.ID, outcome)); got[0] != store.Applied {
		f.t.Fatalf("%v after %v: %v", row, after, got)
	}
	due := f.now()
	if row["due"] == "after" {
		due = due.Add(max(after, 0))
	}
	record, recorded := f.record(run.ID), "-"
	if len(record.Attempts) > 0 {
		recorded = record.Attempts[0].Outcome.String()
		if got := text(record.Attempts[0].Log); got != outcome.Log {
			f.t.Errorf("%v: the attempt has the lines %q, want %q", row, got, outcome.Log)
		}
	}
	got := map[string]string{"state": record.State.String(), "charged": strconv.Itoa(record.Attempt), "recorded": recorded, "why": text(record.Error)}
	want := map[string]string{"state": row["state"], "charged": row["charged"], "recorded": row["recorded"],
		"why": map[string]string{"-": "", "asked": reason, "boom": "boom"}[row["why"]]}
	if !maps.Equal(got, want) || record.State == store.Pending && !near(record.DueAt, due) {
		f.t.Errorf("%v after %v: %v, due %v; want %v, due %v", row, after, got, record.DueAt, want, due)
	}
	if record.State == store.Pending {
		f.operate(store.CancelRuns, run.ID)
	}
}
