package wire

import (
	"net/url"
	"strconv"
	"time"

	"github.com/durable-worker/durable-worker/store"
)

// FilterParams are the parameters that Runs reads: the words of the commands' flags.
func FilterParams() []string {
	return []string{"state", "job", "queue", "tag", "id", "since", "until", "cursor", "limit"}
}

// Runs is the filter of a list of runs.
func (p *Params) Runs() store.Filter {
	f := store.Filter{Jobs: p.Texts("job"), Queues: p.Texts("queue"), Tag: p.Text("tag"), Since: p.Instant("since"), Until: p.Instant("until"),
		Before: p.ID("cursor"), Limit: int(p.Number("limit", 1, store.LargestPage, 0))}
	for _, word := range p.Texts("state") {
		state, err := store.ParseState(word)
		if err != nil {
			p.Refuse("state", "%.150v", err)
			continue
		}
		f.States = append(f.States, state)
	}
	for _, text := range p.Texts("id") {
		id, err := store.ParseRunID(text)
		if err != nil {
			p.Refuse("id", "%.150v", err)
			continue
		}
		f.IDs = append(f.IDs, id)
	}
	return f
}

// Query is a filter as Runs reads it.
func Query(f store.Filter) url.Values {
	q := url.Values{}
	for _, state := range f.States {
		q.Add("state", state.String())
	}
	for _, id := range f.IDs {
		q.Add("id", id.String())
	}
	if len(f.Jobs) > 0 {
		q["job"] = f.Jobs
	}
	if len(f.Queues) > 0 {
		q["queue"] = f.Queues
	}
	if f.Tag != "" {
		q.Set("tag", f.Tag)
	}
	if !f.Since.IsZero() {
		q.Set("since", f.Since.Format(time.RFC3339Nano))
	}
	if !f.Until.IsZero() {
		q.Set("until", f.Until.Format(time.RFC3339Nano))
	}
	if f.Before != (store.RunID{}) {
		q.Set("cursor", f.Before.String())
	}
	if f.Limit != 0 {
		q.Set("limit", strconv.Itoa(f.Limit))
	}
	return q
}

// Filter is a filter of runs in a JSON body, with the words of the query.
type Filter struct {
	State []store.State `json:"state,omitempty"`
	Job   []string      `json:"job,omitempty"`
	Queue []string      `json:"queue,omitempty"`
	Tag   string        `json:"tag,omitempty"`
	ID    []store.RunID `json:"id,omitempty"`
	Since time.Time     `json:"since,omitzero"`
	Until time.Time     `json:"until,omitzero"`
}

// FilterOf is a filter as it is written in JSON.
func FilterOf(f store.Filter) Filter {
	return Filter{State: f.States, Job: f.Jobs, Queue: f.Queues, Tag: f.Tag, ID: f.IDs, Since: f.Since, Until: f.Until}
}

// Filter is the filter that was read from JSON.
func (f Filter) Filter() store.Filter {
	return store.Filter{States: f.State, Jobs: f.Job, Queues: f.Queue, Tag: f.Tag, IDs: f.ID, Since: f.Since, Until: f.Until}
}
