package operate

import (
	"context"
	"errors"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/durable-worker/durable-worker/store"
)

// RunList is a page of runs, newest first. A list does not read attempts.
type RunList struct {
	Runs []store.Record `json:"runs"`
	Next *store.RunID   `json:"next"` // the Before of the next page; nil: this was the last one
	// Examined is how many runs were compared with the filter before a page that is not
	// full; 0: it is full, or the last.
	Examined int `json:"-"`
}

// RunCounts are the numbers of runs by state, zeros included.
type RunCounts struct {
	Counts map[store.State]store.Count `json:"counts"`
}

const (
	// listFor is how long a list continues searching where few runs match.
	listFor = 3 * time.Second
	// searchMost and searchFor are when a search ends that a reader can continue.
	searchMost, searchFor = 100_000, 500 * time.Millisecond
	// defaultPage is how many runs a list has when the filter does not say.
	defaultPage = 50
)

// Run returns one run with its attempts, or ErrNotFound.
func (o *Operator) Run(ctx context.Context, id store.RunID) (store.Record, error) {
	record, err := o.inFull(ctx, id)
	if err == nil {
		err = o.show(ctx, &record)
	}
	if err != nil {
		return store.Record{}, err
	}
	return record, nil
}

// inFull is a run with nothing hidden.
func (o *Operator) inFull(ctx context.Context, id store.RunID) (store.Record, error) {
	record, err := o.store.Run(ctx, id)
	record.Tags, record.Attempts = whole(record.Tags), whole(record.Attempts)
	return record, err
}

// Runs lists the runs that match a filter. A store examines a bounded number of
// runs for one answer; Runs asks again until the page is full. Where few runs
// match it stops after about three seconds, with a page that may be shorter, or
// empty, and a Next.
func (o *Operator) Runs(ctx context.Context, filter store.Filter) (RunList, error) {
	return o.list(ctx, filter, math.MaxInt, listFor)
}

// Search is Runs for a reader who waits: where few runs match it stops after 100,000 runs
// were examined, or half a second, and says how many they were.
func (o *Operator) Search(ctx context.Context, filter store.Filter) (RunList, error) {
	return o.list(ctx, filter, searchMost, searchFor)
}

// list lists runs until the page is full, so many were examined, or so long.
func (o *Operator) list(ctx context.Context, filter store.Filter, most int, within time.Duration) (RunList, error) {
	if filter.Limit == 0 {
		filter.Limit = defaultPage
	}
	list := RunList{Runs: []store.Record{}}
	if err := o.MayFind(filter); err != nil {
		return list, err
	}
	rules, err := o.redactions(ctx)
	if err != nil {
		return list, err
	}
	began, want := o.config.Now(), filter.Limit
	for {
		page, err := o.store.Runs(ctx, filter)
		if err != nil {
			return list, err
		}
		for _, run := range page.Runs {
			if !rules.found(&run, &filter) {
				continue
			}
			run.Tags = whole(run.Tags)
			o.showBy(rules, &run)
			list.Runs = append(list.Runs, run)
		}
		if page.Next == (store.RunID{}) {
			list.Next, list.Examined = nil, 0
			return list, nil
		}
		list.Next, list.Examined = &page.Next, list.Examined+page.Examined
		if len(list.Runs) >= want {
			list.Examined = 0
			return list, nil
		}
		if list.Examined >= most || o.config.Now().Sub(began) > within {
			return list, nil
		}
		filter.Before, filter.Limit = page.Next, want-len(list.Runs)
	}
}

// Counts counts the runs by state. Each number says whether it is exact, a lower
// bound or an estimate.
func (o *Operator) Counts(ctx context.Context) (RunCounts, error) {
	counts, err := o.store.Counts(ctx)
	return RunCounts{counts}, err
}

// CountMatching counts the runs that pass a filter, in the states that it asks
// for. The cursor and the limit of the filter have no effect.
func (o *Operator) CountMatching(ctx context.Context, filter store.Filter) (RunCounts, error) {
	if err := o.mayCount(ctx, &filter); err != nil {
		return RunCounts{}, err
	}
	if !filter.Narrow() {
		counted, err := o.Counts(ctx)
		maps.DeleteFunc(counted.Counts, func(state store.State, _ store.Count) bool { return !slices.Contains(filter.Wanted(), state) })
		return counted, err
	}
	counts, err := o.store.CountMatching(ctx, filter)
	return RunCounts{counts}, err
}

// Wait waits until a run has ended, or until ctx ends, and returns the run with
// its attempts.
func (o *Operator) Wait(ctx context.Context, id store.RunID) (store.Record, error) {
	if _, err := o.client.Wait(ctx, id); err != nil {
		return store.Record{}, err
	}
	return o.Run(context.WithoutCancel(ctx), id)
}

// LinkedRun is a run with the runs that it has to do with.
type LinkedRun struct {
	store.Record
	RunLinks
}

// RunLinks are the runs that one has to do with, and its batch, at most store.MaxLinks that it waits for, and as many
// that wait for it. Those with conditions that are not met come first.
type RunLinks struct {
	Parent     *Parent    `json:"parent"`     // nil: it is no child
	DependsOn  []Link     `json:"depends_on"` // the run is due when their conditions are met
	Children   []Link     `json:"children"`   // that its handler has called
	Dependents []Link     `json:"dependents"` // that depend on this run
	Batch      *BatchView `json:"batch"`      // of which the run is a member; nil: it is in none
	// MoreSources are those of DependsOn and Children that are not listed, MoreDependents those
	// of Dependents.
	MoreSources    Figure `json:"more_sources"`
	MoreDependents Figure `json:"more_dependents"`
}

// Parent is the run whose handler has called another one.
type Parent struct {
	Run   store.RunID  `json:"run"`
	Job   *string      `json:"job"`   // nil: it was deleted
	State *store.State `json:"state"` // likewise
	Step  string       `json:"step"`  // of its handler
}

// Link is another run that a run waits for, or that waits for it.
type Link struct {
	Run   store.RunID  `json:"run"`
	Job   *string      `json:"job"`    // nil: it was deleted
	State *store.State `json:"state"`  // likewise
	Step  *string      `json:"step"`   // of the handler that has called it; nil: it is no child
	On    *On          `json:"on"`     // the condition; nil: it is a child
	AnyOf int          `json:"any_of"` // not 0: one of those with the same number is enough
	Met   bool         `json:"met"`    // the condition is met; of a child: it has ended
}

// LinksOf returns the runs that one has to do with. Of one that is not there it returns none.
func (o *Operator) LinksOf(ctx context.Context, id store.RunID) (RunLinks, error) {
	found, err := o.store.Links(ctx, id)
	if err != nil {
		return RunLinks{}, err
	}
	links := RunLinks{DependsOn: []Link{}, Children: []Link{}, Dependents: []Link{},
		MoreSources: moreOf(found.Sources, len(found.WaitsFor)), MoreDependents: moreOf(found.Waiters, len(found.WaitedFor))}
	for i := range found.WaitsFor {
		if link := linkOf(&found.WaitsFor[i]); link.Step != nil {
			links.Children = append(links.Children, link)
		} else {
			links.DependsOn = append(links.DependsOn, link)
		}
	}
	for i := range found.WaitedFor {
		link := linkOf(&found.WaitedFor[i])
		if link.Step == nil {
			links.Dependents = append(links.Dependents, link)
		} else {
			links.Parent = &Parent{Run: link.Run, Job: link.Job, State: link.State, Step: *link.Step}
		}
	}
	links.Batch, err = o.batchOf(ctx, found.Batch)
	return links, err
}

// batchOf is the batch of a run; nil: it is in none, or the batch was deleted meanwhile.
func (o *Operator) batchOf(ctx context.Context, id *store.BatchID) (*BatchView, error) {
	if id == nil {
		return nil, nil
	}
	view, err := o.BatchSummary(ctx, *id)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return nil, nil
	case err != nil:
		return nil, err
	}
	return &view, nil
}

// RunWithLinks is Run with the runs that it has to do with.
func (o *Operator) RunWithLinks(ctx context.Context, id store.RunID) (LinkedRun, error) {
	record, err := o.Run(ctx, id)
	if err != nil {
		return LinkedRun{}, err
	}
	links, err := o.LinksOf(ctx, id)
	return LinkedRun{record, links}, err
}

func linkOf(link *store.Link) Link {
	shown := Link{Run: link.Run, AnyOf: link.AnyOf, Met: link.Met, Step: someText(link.Name)}
	if link.Found {
		shown.Job, shown.State = &link.Job, &link.State
	}
	if shown.Step == nil {
		on := onOf(link.Want)
		shown.On = &on
	} else {
		shown.Met = !link.Found || link.State.Terminal()
	}
	return shown
}

// moreOf is how many there are beside those that are listed.
func moreOf(all store.Count, listed int) Figure {
	all.N -= min(all.N, int64(listed))
	return figureOf(all)
}
