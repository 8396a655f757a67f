package dashboard

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/durable-worker/durable-worker/operate"
	"github.com/durable-worker/durable-worker/store"
)

// changePage asks before runs are changed.
type changePage struct {
	Action store.RunAction
	Verb   string // for the button: "Retry"
	Object string // "3 runs"
	Short  string // likewise, for the button
	Says   string // what will happen
	Danger bool
	Word   string // to be typed; empty: none
	Fault  string // what was wrong with the form that was sent
	All    bool   // all runs that match
	Fields []hiddenField
	Runs   []store.Record // that are named
	More   int            // named and not listed
	Filter store.Filter
	Reason string
	Back   string
}

// consequences are what the actions do, for people.
var consequences = map[store.RunAction]string{ //nolint:gochecknoglobals // a constant table
	store.CancelRuns:      "A pending run is cancelled immediately. A running one is asked to stop: its context ends, and it is cancelled when its handler returns, unless that succeeds.",
	store.RetryRuns:       "Each run becomes pending again, due now, with all of its attempts. It keeps its id, args and unique key.",
	store.AcknowledgeRuns: "It leaves the problems and the figures of dead runs. It stays dead, and can be retried later.",
	store.ReleaseRuns:     "It is due now, as if its conditions were met. What becomes later of the runs that it depends on has no effect on it any more.",
	store.DeleteRuns:      "Each run is removed with its args, result, attempts and logs. This cannot be undone. The audit log keeps that it was deleted.",
}

// verbs are the actions' words on buttons.
var verbs = map[store.RunAction]string{store.CancelRuns: "Cancel", store.RetryRuns: "Retry", store.DeleteRuns: "Delete", store.AcknowledgeRuns: "Acknowledge", store.ReleaseRuns: "Release"} //nolint:gochecknoglobals // a constant table

// namedMost bounds the runs that a page of confirmation lists.
const namedMost = 10

func (d *dashboard) confirmRuns(ctx context.Context, r *request) (view, error) {
	shown, err := d.changeOf(ctx, r)
	if err != nil {
		return view{}, err
	}
	return view{page: "change", title: shown.Verb + " " + shown.Object, section: "runs", data: shown}, nil
}

// changeOf reads what a form wants to do to which runs.
func (d *dashboard) changeOf(ctx context.Context, r *request) (changePage, error) {
	action := store.RunAction(r.form.Get("action"))
	shown := changePage{Action: action, Verb: verbs[action], Says: consequences[action], All: r.form.Get("all") == "true",
		Danger: action == store.DeleteRuns, Reason: r.form.Get("reason"), Back: back(r.form, "runs")}
	if shown.Verb == "" {
		return shown, fmt.Errorf("%w: action %q: want cancel, retry, release, acknowledge or delete", store.ErrInvalid, clip(50, string(action)))
	}
	if shown.All {
		return shown, d.changeAllOf(ctx, r, &shown)
	}
	ids, err := idsOf(r.form)
	if err != nil {
		return shown, err
	}
	if len(ids) == 0 {
		return shown, fmt.Errorf("%w: no run is chosen: tick some, or choose all that match", store.ErrInvalid)
	}
	if shown.Danger {
		shown.Word = string(action)
	}
	shown.Object = plural(int64(len(ids)), "run", "runs")
	for _, id := range ids {
		shown.Fields = append(shown.Fields, hiddenField{"id", id.String()})
	}
	list, err := r.do.Runs(ctx, store.Filter{IDs: ids[:min(len(ids), namedMost)], Limit: namedMost})
	shown.Runs, shown.More = list.Runs, len(ids)-min(len(ids), namedMost)
	shown.Short = shown.Object
	if len(ids) == 1 && len(list.Runs) == 1 {
		shown.Short, shown.Runs = "run", nil
		shown.Object = "run " + short(ids[0]) + " of " + list.Runs[0].Job
	}
	return shown, err
}

// matchingWithin is how long a question waits for the number of runs that it is about.
const matchingWithin = 40 * time.Millisecond

// changeAllOf completes a change of all runs that match. It is fixed to those that
// were created before the person was asked.
func (d *dashboard) changeAllOf(ctx context.Context, r *request, shown *changePage) error {
	filter, err := filterOf(r.form, r.now)
	if err != nil {
		return err
	}
	if err := r.do.MayFind(filter); err != nil {
		return err
	}
	if filter.Until.IsZero() || filter.Until.After(r.now) {
		filter.Until = r.now
	}
	before := filter.Before
	filter.Before = store.RunID{}
	counting, cancel := context.WithTimeout(ctx, matchingWithin)
	defer cancel()
	count, known := r.do.Matching(counting, shown.Action, filter)
	shown.Filter, shown.Word = onlyStates(shown.Action, filter), string(shown.Action)
	shown.Fields = append(hiddenFields(words(shown.Filter)), hiddenField{"all", "true"})
	if before != (store.RunID{}) {
		shown.Fields = append(shown.Fields, hiddenField{"cursor", before.String()})
	}
	shown.Object = "all runs that match"
	if text := matching(count, known); text != "" {
		shown.Object = text
	}
	shown.Short = shown.Object
	return nil
}

func (d *dashboard) changeRuns(ctx context.Context, r *request) (view, error) {
	shown, err := d.changeOf(ctx, r)
	if err != nil {
		return view{}, err
	}
	if shown.Word != "" && !strings.EqualFold(strings.TrimSpace(r.form.Get("word")), shown.Word) {
		shown.Fault = fmt.Sprintf("Type %s to confirm.", shown.Word)
		return view{page: "change", title: shown.Verb + " " + shown.Object, section: "runs", data: shown, status: 400}, nil
	}
	if shown.All {
		return d.changeAll(r, shown)
	}
	ids, err := idsOf(r.form)
	if err != nil {
		return view{}, err
	}
	done, err := r.do.Change(ctx, store.RunCommand{Action: shown.Action, Reason: strings.TrimSpace(r.form.Get("reason")), Runs: ids})
	if err != nil {
		return view{}, err
	}
	if refused := done.Refused(shown.Action); len(ids) == 1 && refused != nil {
		return view{}, refused
	}
	to := shown.Back
	if shown.Action == store.DeleteRuns && strings.HasPrefix(to, "runs/") {
		to = "runs"
	}
	return view{to: with(to, did(shown.Action, summed(done)))}, nil
}

// summed counts the results of some runs.
func summed(done operate.ChangedRuns) (b operate.Bulk) {
	for _, run := range done.Runs {
		switch run.Result {
		case store.RunChanged:
			b.Changed++
		case store.CancelRequested:
			b.CancelRequested++
		case store.RunConflict:
			b.Conflict++
		case store.RunLocked:
			b.Locked++
		case store.RunNotFound:
			b.NotFound++
		default:
			b.Unchanged++
		}
	}
	return b
}

// changeAll begins a change of all runs that match, and leads to its page.
func (d *dashboard) changeAll(r *request, shown changePage) (view, error) {
	filter := shown.Filter
	var err error
	if text := r.form.Get("cursor"); text != "" {
		if filter.Before, err = store.ParseRunID(text); err != nil {
			return view{}, fmt.Errorf("%w: cursor: %w", store.ErrInvalid, err)
		}
	}
	begun, err := r.do.StartBulk(operate.BulkOrder{Action: shown.Action, Filter: filter, Reason: strings.TrimSpace(r.form.Get("reason"))})
	if err != nil {
		return view{}, err
	}
	return view{to: "bulk/" + strconv.FormatInt(begun.N, 10)}, nil
}
