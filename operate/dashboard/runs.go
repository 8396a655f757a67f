package dashboard

import (
	"cmp"
	"context"
	"encoding/binary"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/durable-worker/durable-worker/operate"
	"github.com/durable-worker/durable-worker/store"
)

// runList is the page with the list of runs.
type runList struct {
	operate.RunList

	Filter   store.Filter
	Form     url.Values // as it was asked
	States   []stateTab
	Jobs     []choice // nil: there are too many to offer
	Queues   []choice // likewise
	NextTo   string   // address of the next page; empty: this is the last
	First    bool     // this is the first page
	FirstTo  string
	Searched *stamp // how far back the search came; nil: to the end, or the page is full
	Bare     bool   // no condition at all
	Hidden   []hiddenField
	Rare     bool // a condition that is asked for seldom is given
}

// stateTab leads to the runs of one state.
type stateTab struct {
	State  string // empty: all
	Count  string
	To     string
	Chosen bool
}

// choice is one value of a filter.
type choice struct {
	Value  string
	Chosen bool
	Label  string // empty: the value
}

// hiddenField carries a condition through a form.
type hiddenField struct{ Name, Value string }

// runsMost is how many runs are on a page.
const runsMost = 50

func (d *dashboard) runs(ctx context.Context, r *request) (view, error) {
	if found, err := d.search(ctx, r); found != "" || err != nil {
		return view{to: found}, err
	}
	filter, err := filterOf(r.form, r.now)
	if err != nil {
		return view{}, err
	}
	filter.Limit = runsMost
	list, err := r.do.Search(ctx, filter)
	if err != nil {
		return view{}, err
	}
	head := d.headers.shown()
	shown := runList{RunList: list, Filter: filter, Form: r.form, First: filter.Before == (store.RunID{}), Bare: len(words(filter)) == 0,
		States: stateTabs(r.form, &head), Hidden: hiddenFields(words(filter)), Rare: filter.Key+filter.Schedule+filter.Worker != "" || filter.Linked() || filter.Metadata != nil || !filter.Until.IsZero() || !filter.EndedSince.IsZero(),
		FirstTo: "runs?" + changed(r.form, "cursor", "").Encode()}
	if err := d.choices(ctx, &shown); err != nil {
		return view{}, err
	}
	if list.Next != nil {
		if len(list.Runs) < runsMost {
			shown.Searched = stampOf(createdAt(*list.Next), r.now)
		}
		shown.NextTo = "runs?" + changed(r.form, "cursor", list.Next.String()).Encode()
	}
	return view{page: "runs", title: "Runs", section: "runs", data: shown}, nil
}

// search leads from the id of a run, or the beginning of one, to the run.
func (d *dashboard) search(ctx context.Context, r *request) (string, error) {
	text := strings.TrimSpace(r.form.Get("find"))
	if text == "" {
		return "", nil
	}
	if isID := operate.CheckID(text) == nil; !isID {
		return "runs?" + url.Values{"tag": {text}}.Encode(), nil
	}
	id, err := r.do.FindID(ctx, text)
	if err != nil {
		return "", err
	}
	return "runs/" + id.String(), nil
}

// choices fills in what the filter offers.
func (d *dashboard) choices(ctx context.Context, shown *runList) error {
	known, err := d.operator.Known(ctx)
	if err != nil {
		return err
	}
	shown.Jobs, shown.Queues = choicesOf(known.Jobs, shown.Filter.Jobs), choicesOf(known.Queues, shown.Filter.Queues)
	return nil
}

// choicesOf are the known values and those that are chosen; nil: there are too many.
func choicesOf(known, chosen []string) []choice {
	values := slices.Concat(known, chosen)
	slices.Sort(values)
	if values = slices.Compact(values); len(values) > choicesMost {
		return nil
	}
	choices := make([]choice, len(values))
	for i, value := range values {
		choices[i] = choice{Value: value, Chosen: slices.Contains(chosen, value)}
	}
	return choices
}

// stateTabs leads from the list to the same list of one state.
func stateTabs(form url.Values, head *figures) []stateTab {
	chosen := given(form["state"])
	tabs := []stateTab{{To: "runs?" + changed(form, "state", "").Encode(), Chosen: len(chosen) == 0}}
	for _, state := range store.States() {
		tabs = append(tabs, stateTab{State: state.String(), Count: countOf(head.Counts, state), To: "runs?" + changed(form, "state", state.String()).Encode(),
			Chosen: slices.Contains(chosen, state.String())})
	}
	return tabs
}

// columns are those of the list of runs that may be left out, or are at first.
func columns() []choice {
	return []choice{{Value: "queue", Label: "Queue"}, {Value: "attempt", Label: "Attempt"}, {Value: "created", Label: "Created"}, {Value: "due", Label: "Due"},
		{Value: "ended", Label: "Ended"}, {Value: "priority", Label: "Priority"}, {Value: "remark", Label: "Detail: worker, error, progress"}, {Value: "id", Label: "Run"}}
}

// createdAt is the time in the id of a run.
func createdAt(id store.RunID) time.Time {
	var stamp [8]byte
	copy(stamp[2:], id[:6])
	return time.UnixMilli(int64(binary.BigEndian.Uint64(stamp[:]))) //nolint:gosec // six bytes
}

// countOf is the number of runs in a state; empty: not known yet.
func countOf(counts map[store.State]store.Count, state store.State) string {
	if counts == nil {
		return ""
	}
	return tally(counts[state])
}

// changed are the parameters of a list with one of them changed, from its first page
// on.
func changed(form url.Values, name, value string) url.Values {
	values := url.Values{}
	for _, kept := range conditions() {
		if some := given(form[kept]); kept != name && len(some) > 0 {
			values[kept] = some
		}
	}
	if value != "" {
		values.Set(name, value)
	}
	return values
}

// tagged is the address of a list that is narrowed to one tag as well.
func tagged(form url.Values, tag string) string {
	return "runs?" + changed(form, "tag", tag).Encode()
}

// hiddenFields carry parameters through a form.
func hiddenFields(values url.Values) (fields []hiddenField) {
	for name, some := range values {
		for _, value := range some {
			fields = append(fields, hiddenField{name, value})
		}
	}
	slices.SortStableFunc(fields, func(a, b hiddenField) int { return cmp.Compare(a.Name, b.Name) })
	return fields
}
