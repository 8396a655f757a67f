package dashboard

import (
	"fmt"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/durable-worker/durable-worker/internal/wire"
	"github.com/durable-worker/durable-worker/store"
)

// plainPath are the paths of pages: they begin with no slash and lead nowhere up.
var plainPath = regexp.MustCompile(`^[a-z]+(/[0-9a-z-]+)*$`)

// filterOf reads which runs an address asks for, in the words of the commands.
func filterOf(form url.Values, now time.Time) (store.Filter, error) {
	filter := store.Filter{Jobs: given(form["job"]), Queues: given(form["queue"]), Tag: strings.TrimSpace(form.Get("tag")), Key: form.Get("key"),
		Schedule: strings.TrimSpace(form.Get("schedule")), Worker: strings.TrimSpace(form.Get("worker")), Error: form.Get("error"), Args: form.Get("args")}
	for _, text := range given(form["metadata"]) {
		name, value, err := store.ParseMetadata(text)
		if err != nil {
			return filter, fmt.Errorf("%w: %w", store.ErrInvalid, err)
		}
		if filter.Metadata == nil {
			filter.Metadata = store.Metadata{}
		}
		filter.Metadata[name] = value
	}
	for _, word := range given(form["state"]) {
		state, err := store.ParseState(word)
		if err != nil {
			return filter, fmt.Errorf("%w: state: %w", store.ErrInvalid, err)
		}
		filter.States = append(filter.States, state)
	}
	var err error
	if filter.Since, err = instantOf(form.Get("since"), now); err != nil {
		return filter, fmt.Errorf("%w: since: %w", store.ErrInvalid, err)
	}
	if filter.Until, err = instantOf(form.Get("until"), now); err != nil {
		return filter, fmt.Errorf("%w: until: %w", store.ErrInvalid, err)
	}
	if filter.EndedSince, err = instantOf(form.Get("ended_since"), now); err != nil {
		return filter, fmt.Errorf("%w: ended since: %w", store.ErrInvalid, err)
	}
	for name, id := range map[string]*store.RunID{"cursor": &filter.Before, "parent": &filter.Parent, "waiting_on": &filter.WaitingOn, "batch": &filter.Batch} {
		text := strings.TrimSpace(form.Get(name))
		if text == "" {
			continue
		}
		if *id, err = store.ParseRunID(text); err != nil {
			return filter, fmt.Errorf("%w: %s: %w", store.ErrInvalid, strings.ReplaceAll(name, "_", " "), err)
		}
		if *id == (store.RunID{}) && name != "cursor" { // which would mean any
			return filter, fmt.Errorf("%w: %s: nothing has the id %s", store.ErrInvalid, strings.ReplaceAll(name, "_", " "), text)
		}
	}
	return filter, nil
}

// given are the values that are not empty, each once.
func given(values []string) (some []string) {
	for _, value := range values {
		if value = strings.TrimSpace(value); value != "" && !slices.Contains(some, value) {
			some = append(some, value)
		}
	}
	return some
}

// instantOf reads a time, or how long ago it was.
func instantOf(text string, now time.Time) (time.Time, error) {
	text = strings.TrimSpace(text)
	if text == "" {
		return time.Time{}, nil
	}
	for _, form := range []string{time.RFC3339Nano, "2006-01-02T15:04Z07:00", "2006-01-02T15:04:05", "2006-01-02T15:04", "2006-01-02"} {
		if at, err := time.Parse(form, text); err == nil {
			return at, nil
		}
	}
	return wire.Instant(text, now)
}

// conditions are the parameters of a list of runs, its cursor left out.
func conditions() []string {
	return []string{"state", "job", "queue", "tag", "key", "schedule", "parent", "waiting_on", "batch", "worker", "error", "args", "metadata", "since", "until", "ended_since"}
}

// words are the parameters of a filter.
func words(f store.Filter) url.Values {
	values := url.Values{}
	for _, state := range f.States {
		values.Add("state", state.String())
	}
	for _, job := range f.Jobs {
		values.Add("job", job)
	}
	for _, queue := range f.Queues {
		values.Add("queue", queue)
	}
	for name, value := range map[string]string{"tag": f.Tag, "key": f.Key, "schedule": f.Schedule, "worker": f.Worker, "error": f.Error, "args": f.Args} {
		if value != "" {
			values.Set(name, value)
		}
	}
	for name, id := range map[string]store.RunID{"parent": f.Parent, "waiting_on": f.WaitingOn, "batch": f.Batch} {
		if id != (store.RunID{}) {
			values.Set(name, id.String())
		}
	}
	for _, name := range slices.Sorted(maps.Keys(f.Metadata)) {
		values.Add("metadata", name+"="+f.Metadata[name])
	}
	for name, at := range map[string]time.Time{"since": f.Since, "until": f.Until, "ended_since": f.EndedSince} {
		if !at.IsZero() {
			values.Set(name, at.UTC().Format(time.RFC3339Nano))
		}
	}
	return values
}

// idsOf reads the runs that a form names.
func idsOf(form url.Values) ([]store.RunID, error) {
	var ids []store.RunID
	for _, text := range given(form["id"]) {
		id, err := store.ParseRunID(text)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", store.ErrInvalid, err)
		}
		ids = append(ids, id)
	}
	if len(ids) > store.LargestPage {
		return nil, fmt.Errorf("%w: %d runs: choose at most %d, or all that match", store.ErrInvalid, len(ids), store.LargestPage)
	}
	return ids, nil
}

// onlyStates keeps the states of a filter that an action is about.
func onlyStates(action store.RunAction, f store.Filter) store.Filter {
	if len(f.States) == 0 {
		f.States = action.States()
	}
	return f
}

// matching is how many runs a change to all of a filter is about; empty: not known.
func matching(count store.Count, known bool) string {
	if !known {
		return ""
	}
	if count.N == 1 {
		return "1 run"
	}
	return tally(count) + " runs"
}
