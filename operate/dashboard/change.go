package dashboard

import (
	"context"
	"fmt"
	"slices"
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
var consequences = map[store.RunAction]string{
	store.CancelRuns: "A pending run is cancelled immediately. A running one is asked to stop: its context ends, and it is cancelled when its handler returns, unless that succeeds.",
	store.RetryRuns:  "Each run becomes pending again, due now, with all of its attempts. It keeps its id, args and key.",
	store.DeleteRuns: "Each run is removed with its args, result, attempts and logs. This cannot be undone. The audit keeps that it was deleted.",
}

// verbs are the actions' words on buttons.
var verbs = map[store.RunAction]string{store.CancelRuns: "Cancel", store.RetryRuns: "Retry", store.DeleteRuns: "Delete"}

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
		return shown, fmt.Errorf("%w: action %q: want cancel, retry or delete", store.ErrInvalid, clip(50, string(action)))
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
	list, err := d.operator.Runs(ctx, store.Filter{IDs: ids[:min(len(ids), namedMost)], Limit: namedMost})
	shown.Runs, shown.More = list.Runs, len(ids)-min(len(ids), namedMost)
	if len(ids) == 1 && len(list.Runs) == 1 {
		shown.Object = "run " + short(ids[0]) + " of " + list.Runs[0].Job
	}
	return shown, err
}

// changeAllOf completes a change of all runs that match. It is fixed to those that
// were created before the person was asked.
func (d *dashboard) changeAllOf(ctx context.Context, r *request, shown *changePage) error {
	filter, err := filterOf(r.form, r.now)
	if err != nil {
		return err
	}
	if filter.Until.IsZero() || filter.Until.After(r.now) {
		filter.Until = r.now
	}
	before := filter.Before
	filter.Before = store.RunID{}
	count, known := d.operator.Matching(ctx, shown.Action, filter)
	shown.Filter, shown.Word = onlyStates(shown.Action, filter), string(shown.Action)
	shown.Fields = append(hiddenFields(words(shown.Filter)), hiddenField{"all", "true"})
	if before != (store.RunID{}) {
		shown.Fields = append(shown.Fields, hiddenField{"cursor", before.String()})
	}
	shown.Object = "all runs that match"
	if text := matching(count, known); text != "" {
		shown.Object = text
	}
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
		return d.changeAll(ctx, r, shown)
	}
	ids, err := idsOf(r.form)
	if err != nil {
		return view{}, err
	}
	act := map[store.RunAction]func(context.Context, string, ...store.RunID) (operate.ChangedRuns, error){
		store.CancelRuns: r.do.Cancel, store.RetryRuns: r.do.Retry, store.DeleteRuns: r.do.Delete,
	}[shown.Action]
	done, err := act(ctx, strings.TrimSpace(r.form.Get("reason")), ids...)
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

// bulkFor is how long one request changes runs before it shows how far it has come.
const bulkFor = 2 * time.Second

// bulkPage shows how far a change of all runs that match has come.
type bulkPage struct {
	changePage

	So   operate.Bulk
	Next string // where to continue
}

// changeAll changes runs for a while, and then shows a page that continues: with a
// button, or by itself where there are scripts. What is left to do is in the page, so
// it survives a restart of any process; who closes the page stops it.
func (d *dashboard) changeAll(ctx context.Context, r *request, shown changePage) (view, error) {
	filter, err := filterOf(r.form, r.now)
	if err != nil {
		return view{}, err
	}
	act := map[store.RunAction]func(context.Context, store.Filter, string, func(operate.Bulk)) (operate.Bulk, error){
		store.CancelRuns: r.do.CancelAll, store.RetryRuns: r.do.RetryAll, store.DeleteRuns: r.do.DeleteAll,
	}[shown.Action]
	limited, stop := context.WithCancel(ctx)
	defer stop()
	began := time.Now()
	done, err := act(limited, filter, strings.TrimSpace(r.form.Get("reason")), func(operate.Bulk) {
		if time.Since(began) > bulkFor {
			stop()
		}
	})
	if err != nil && (limited.Err() == nil || ctx.Err() != nil) {
		return view{}, err
	}
	addEarlier(&done, r)
	if done.Next == (store.RunID{}) {
		return view{to: with(shown.Back, did(shown.Action, done))}, nil
	}
	shown.Fields = slices.DeleteFunc(shown.Fields, func(f hiddenField) bool { return f.Name == "cursor" })
	for name, values := range did(shown.Action, done) {
		if name != "did" {
			shown.Fields = append(shown.Fields, hiddenField{name, values[0]})
		}
	}
	return view{page: "bulk", title: shown.Verb + " " + shown.Object, section: "runs", data: bulkPage{shown, done, done.Next.String()}}, nil
}

// addEarlier adds what the requests before this one have done.
func addEarlier(done *operate.Bulk, r *request) {
	for result, count := range map[store.ChangeResult]*int{
		store.RunChanged: &done.Changed, store.CancelRequested: &done.CancelRequested, store.RunUnchanged: &done.Unchanged,
		store.RunConflict: &done.Conflict, store.RunLocked: &done.Locked, store.RunNotFound: &done.NotFound,
	} {
		*count += wholeNumber(r.form.Get(string(result)))
	}
}
