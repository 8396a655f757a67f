package dashboard

import (
	"net/url"

	"github.com/durable-worker/durable-worker/operate"
)

const (
	rowsMost    = 100 // of a page of a list
	choicesMost = 200 // that a field offers; where there are more, a name is typed
)

// pager leads through the pages of a list.
type pager struct {
	First           bool
	FirstTo, NextTo string // addresses; empty: this is the last page
}

// part is the part of a list that an address asks for.
func (r *request) part(names ...string) operate.Part {
	return operate.Part{Names: names, After: r.form.Get("cursor"), Limit: rowsMost}
}

// pagerOf leads from a page of a list to others. pairs are what else its address says.
func (r *request) pagerOf(path string, next *string, pairs ...string) pager {
	query := url.Values{}
	for i := 0; i+1 < len(pairs); i += 2 {
		query.Set(pairs[i], pairs[i+1])
	}
	p := pager{First: r.form.Get("cursor") == "", FirstTo: with(path, query)}
	if next != nil {
		query.Set("cursor", *next)
		p.NextTo = with(path, query)
	}
	return p
}
