package wire

import (
	"encoding/json"
	"errors"
	"time"

	"github.com/durable-worker/durable-worker/store"
)

// FilterParams are the parameters that Runs reads: the words of the commands' flags.
func FilterParams() []string {
	return []string{"state", "job", "queue", "tag", "key", "schedule", "parent", "waiting_on", "batch", "worker", "error", "args", "metadata", "id", "since", "until", "ended_since", "cursor", "limit"}
}

// Runs is the filter of a list of runs.
func (p *Params) Runs() store.Filter {
	f := store.Filter{Jobs: p.Texts("job"), Queues: p.Texts("queue"), Tag: p.Text("tag"), Key: p.Text("key"), Schedule: p.Text("schedule"),
		Parent: p.linked("parent"), WaitingOn: p.linked("waiting_on"), Batch: p.linkedBatch("batch"),
		Worker: p.Text("worker"), Error: p.Text("error"), Args: p.Text("args"), Metadata: p.metadata("metadata"),
		Since: p.Instant("since"), Until: p.Instant("until"), EndedSince: p.Instant("ended_since"),
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

// linked is the id of a run that others have to do with. The zero id would mean "any".
func (p *Params) linked(parameter string) store.RunID {
	id := p.ID(parameter)
	if p.Given(parameter) && id == (store.RunID{}) {
		p.Refuse(parameter, "want the id of a run, or leave it out")
	}
	return id
}

// linkedBatch is the id of a batch of which runs are members. The zero id would mean "any".
func (p *Params) linkedBatch(parameter string) store.BatchID {
	id := p.ID(parameter)
	if p.Given(parameter) && id == (store.BatchID{}) {
		p.Refuse(parameter, "want the id of a batch, or leave it out")
	}
	return id
}

// metadata are the values of a parameter that has a name=value each time.
func (p *Params) metadata(parameter string) store.Metadata {
	var wanted store.Metadata
	for _, text := range p.Texts(parameter) {
		name, value, err := store.ParseMetadata(text)
		if err != nil {
			p.Refuse(parameter, "%.150v", err)
			continue
		}
		if _, twice := wanted[name]; twice {
			p.Refuse(parameter, "%.100q: want one value for each name", name)
		}
		if wanted == nil {
			wanted = store.Metadata{}
		}
		wanted[name] = value
	}
	return wanted
}

// text is a condition that must say something when it is given. Left to mean "any", a
// variable that a script forgot to set would make a bulk change concern all runs.
type text string

// UnmarshalJSON reads the condition.
func (t *text) UnmarshalJSON(value []byte) error {
	var s string
	if err := json.Unmarshal(value, &s); err != nil || s == "" {
		return errors.New("want a text that is not empty, or leave it out")
	}
	*t = text(s)
	return nil
}

// when is a condition that must be a time when it is given: the zero time is none.
type when struct{ time.Time }

// UnmarshalJSON reads the condition.
func (w *when) UnmarshalJSON(value []byte) error {
	if err := json.Unmarshal(value, &w.Time); err != nil || w.IsZero() {
		return errors.New("want a time such as 2030-01-31T08:00:00Z, of a year from 1970 to 9999, or leave it out")
	}
	return nil
}

// linked is a condition that must name a run when it is given: the zero id is none.
type linked struct{ store.RunID }

// UnmarshalJSON reads the condition.
func (l *linked) UnmarshalJSON(value []byte) error {
	if err := json.Unmarshal(value, &l.RunID); err != nil || l.RunID == (store.RunID{}) {
		return errors.New("want the id of a run, or leave it out")
	}
	return nil
}

// batched is a condition that must name a batch when it is given: the zero id is none.
type batched struct{ store.BatchID }

// UnmarshalJSON reads the condition.
func (b *batched) UnmarshalJSON(value []byte) error {
	if err := json.Unmarshal(value, &b.BatchID); err != nil || b.BatchID == (store.BatchID{}) {
		return errors.New("want the id of a batch, or leave it out")
	}
	return nil
}

// MarshalJSON writes the condition.
func (b batched) MarshalJSON() ([]byte, error) { return json.Marshal(b.BatchID) }

// MarshalJSON writes the condition.
func (l linked) MarshalJSON() ([]byte, error) { return json.Marshal(l.RunID) }

// Filter is a filter of runs in a JSON body, with the words of the query.
type Filter struct {
	State      []store.State  `json:"state,omitempty"`
	Job        []string       `json:"job,omitempty"`
	Queue      []string       `json:"queue,omitempty"`
	Tag        text           `json:"tag,omitempty"`
	Key        text           `json:"key,omitempty"`
	Schedule   text           `json:"schedule,omitempty"`
	Parent     linked         `json:"parent,omitzero"`
	WaitingOn  linked         `json:"waiting_on,omitzero"`
	Batch      batched        `json:"batch,omitzero"`
	Worker     text           `json:"worker,omitempty"`
	Error      text           `json:"error,omitempty"`
	Args       text           `json:"args,omitempty"`
	Metadata   store.Metadata `json:"metadata,omitempty"`
	ID         []store.RunID  `json:"id,omitempty"`
	Since      when           `json:"since,omitzero"`
	Until      when           `json:"until,omitzero"`
	EndedSince when           `json:"ended_since,omitzero"`
}

// FilterOf is a filter as it is written in JSON.
func FilterOf(f store.Filter) Filter {
	return Filter{State: f.States, Job: f.Jobs, Queue: f.Queues, Tag: text(f.Tag), Key: text(f.Key), Schedule: text(f.Schedule),
		Parent: linked{f.Parent}, WaitingOn: linked{f.WaitingOn}, Batch: batched{f.Batch},
		Worker: text(f.Worker), Error: text(f.Error), Args: text(f.Args),
		Metadata: f.Metadata, ID: f.IDs, Since: when{f.Since}, Until: when{f.Until}, EndedSince: when{f.EndedSince}}
}

// Filter is the filter that was read from JSON.
func (f Filter) Filter() store.Filter {
	return store.Filter{States: f.State, Jobs: f.Job, Queues: f.Queue, Tag: string(f.Tag), Key: string(f.Key), Schedule: string(f.Schedule),
		Parent: f.Parent.RunID, WaitingOn: f.WaitingOn.RunID, Batch: f.Batch.BatchID,
		Worker: string(f.Worker), Error: string(f.Error), Args: string(f.Args),
		Metadata: f.Metadata, IDs: f.ID, Since: f.Since.Time, Until: f.Until.Time, EndedSince: f.EndedSince.Time}
}
