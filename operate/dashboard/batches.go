package dashboard

import (
	"context"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/durable-worker/durable-worker/operate"
	"github.com/durable-worker/durable-worker/store"
)

// batchLine is a batch as the pages show it.
type batchLine struct {
	operate.BatchView

	Left string // how long the others take; empty: it is not known
}

func batchLineOf(b *operate.BatchView) batchLine {
	line := batchLine{BatchView: *b}
	if b.TimeLeft != nil {
		line.Left = brief(time.Duration(*b.TimeLeft))
	}
	return line
}

// batchList is the page of the batches.
type batchList struct {
	Batches []batchLine
	States  []batchTab
	Name    string
	State   string
	Pager   pager
}

// batchTab leads to the batches in one state; without a word, to all.
type batchTab struct {
	State, To string
	Chosen    bool
}

// batchPage is the page of one batch.
type batchPage struct {
	batchLine

	Rate    string
	Failed  []operate.Member
	More    int64 // failed members that are not shown
	Waiters []operate.BatchWaiter
	Back    string
	Members []memberCount
	// AllFailed leads to the list of all members that have failed.
	AllFailed string
}

// memberCount is how many members are in some states, and leads to the list of them.
type memberCount struct {
	Label, To string
	N         int64
}

// memberCounts are the members of a batch by their states.
func memberCounts(b *operate.BatchView) []memberCount {
	return []memberCount{
		{"Succeeded", membersAt(b.ID, store.Succeeded), b.Counts.Succeeded},
		{"Dead", membersAt(b.ID, store.Dead), b.Counts.Dead},
		{"Cancelled", membersAt(b.ID, store.Cancelled), b.Counts.Cancelled},
		{"Unfinished", membersAt(b.ID, store.Pending, store.Running), b.Unfinished},
	}
}

// membersAt is the address of the list of the members of a batch that are in some states.
func membersAt(id store.BatchID, states ...store.State) string {
	return with("runs", words(store.Filter{Batch: id, States: states}))
}

func (d *dashboard) batches(ctx context.Context, r *request) (view, error) {
	shown := batchList{Name: r.form.Get("name"), State: r.form.Get("state")}
	filter := store.BatchFilter{Name: shown.Name, Limit: rowsMost}
	if shown.State != "" {
		var state store.BatchState
		if err := state.UnmarshalText([]byte(shown.State)); err != nil {
			return view{}, fmt.Errorf("%w: state: %.150w", store.ErrInvalid, err)
		}
		filter.States = []store.BatchState{state}
	}
	if text := r.form.Get("cursor"); text != "" {
		var err error
		if filter.Before, err = store.ParseRunID(text); err != nil {
			return view{}, fmt.Errorf("%w: cursor: %w", store.ErrInvalid, err)
		}
	}
	list, err := r.do.Batches(ctx, filter)
	if err != nil {
		return view{}, err
	}
	for i := range list.Batches {
		shown.Batches = append(shown.Batches, batchLineOf(&list.Batches[i]))
	}
	shown.States = append(shown.States, batchTab{To: with("batches", pairsOf("name", shown.Name)), Chosen: shown.State == ""})
	for _, state := range store.BatchStates() {
		word := state.String()
		query := pairsOf("state", word, "name", shown.Name)
		shown.States = append(shown.States, batchTab{State: word, To: with("batches", query), Chosen: word == shown.State})
	}
	var next *string
	if list.Next != nil {
		text := list.Next.String()
		next = &text
	}
	shown.Pager = r.pagerOf("batches", next, pairsFlat("state", shown.State, "name", shown.Name)...)
	return view{page: "batches", title: "Batches", section: "batches", data: shown}, nil
}

// pairsOf are parameters of an address; empty ones are left out.
func pairsOf(pairs ...string) url.Values {
	query := url.Values{}
	for given := pairsFlat(pairs...); len(given) > 0; given = given[2:] {
		query.Set(given[0], given[1])
	}
	return query
}

func pairsFlat(pairs ...string) (given []string) {
	for i := 0; i+1 < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			given = append(given, pairs[i], pairs[i+1])
		}
	}
	return given
}

// batchID is the batch that an address names.
func batchID(r *request) (store.BatchID, error) {
	id, err := store.ParseRunID(r.PathValue("id"))
	if err != nil {
		return id, fmt.Errorf("%w: %q is not the id of a batch", store.ErrInvalid, clip(50, r.PathValue("id")))
	}
	return id, nil
}

func (d *dashboard) batch(ctx context.Context, r *request) (view, error) {
	id, err := batchID(r)
	if err != nil {
		return view{}, err
	}
	batch, err := r.do.Batch(ctx, id)
	if err != nil {
		return view{}, err
	}
	shown := batchPage{batchLine: batchLineOf(&batch.BatchView), Failed: batch.Failed, More: batch.Counts.Failed() - int64(len(batch.Failed)), Waiters: batch.Waiters,
		Back: "batches/" + id.String(), Members: memberCounts(&batch.BatchView), AllFailed: membersAt(id, store.Dead, store.Cancelled)}
	if batch.Rate != nil {
		shown.Rate = per(*batch.Rate)
	}
	return view{page: "batch", title: "Batch " + clip(200, batch.Name), section: "batches", data: &shown}, nil
}

// askBatch asks before a batch is changed.
func (d *dashboard) askBatch(ctx context.Context, r *request) (view, error) {
	id, err := batchID(r)
	if err != nil {
		return view{}, err
	}
	batch, err := r.do.BatchSummary(ctx, id)
	if err != nil {
		return view{}, err
	}
	action := r.form.Get("action")
	q, known := map[string]question{
		"close": {Title: "Close batch %s?", Verb: "Close",
			Says: "No run is added to it any more, except by its members. It ends when they have ended."},
		"cancel": {Title: "Cancel batch %s?", Verb: "Cancel the batch", Danger: true, Word: "cancel", Reason: true,
			Says: "It takes no more runs. " + plural(batch.Unfinished, "member that has", "members that have") + " not ended: pending ones are cancelled, and running ones are asked to stop."},
		"retry": {Title: "Retry the dead members of batch %s?", Verb: "Retry " + plural(batch.Counts.Dead, "dead member", "dead members"), Reason: true,
			Says: "Each becomes pending again, due now, with all of its attempts. The change can be stopped, and shows how far it has come."},
	}[action]
	if !known {
		return view{}, fmt.Errorf("%w: action %q: want close, cancel or retry", store.ErrInvalid, clip(50, action))
	}
	at := "batches/" + id.String()
	q.To, q.Title, q.Back = at+"/change", fmt.Sprintf(q.Title, clip(200, batch.Name)), back(r.form, at)
	return r.ask("batches", q, "action", action), nil
}

func (d *dashboard) changeBatch(ctx context.Context, r *request) (view, error) {
	asked, err := d.askBatch(ctx, r)
	if err != nil {
		return view{}, err
	}
	id, err := batchID(r)
	if err != nil {
		return view{}, err
	}
	reason, action, to := strings.TrimSpace(r.form.Get("reason")), r.form.Get("action"), ""
	answer, err := r.answered(ctx, asked, action, "batches/"+id.String(), func(ctx context.Context) (err error) {
		switch action {
		case "close":
			_, err = r.do.CloseBatch(ctx, id)
		case "cancel":
			_, err = r.do.CancelBatch(ctx, id, reason)
		default:
			var begun operate.BulkStatus
			begun, err = r.do.StartRetryBatch(ctx, id, reason)
			to = "bulk/" + strconv.FormatInt(begun.N, 10)
		}
		return err
	})
	if to != "" && err == nil && answer.to != "" {
		return view{to: to}, nil
	}
	return answer, err
}
