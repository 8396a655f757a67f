package dashboard

import (
	"context"
	"fmt"
	"net/url"
	"strconv"
	"strings"

	"github.com/durable-worker/durable-worker/operate"
	"github.com/durable-worker/durable-worker/store"
)

// auditPage is who changed what.
type auditPage struct {
	operate.ChangeList

	Filter store.ChangeFilter
	Form   url.Values
	Kinds  []choice
	NextTo string
	File   string // address of the changes as a file
	First  bool
	Bare   bool
}

// auditKinds are the kinds of things that are changed.
var auditKinds = []string{"run", "bulk", "batch", "queue", "schedule", "limit", "lock", store.KindSession} //nolint:gochecknoglobals // a constant table

func (d *dashboard) audit(ctx context.Context, r *request) (view, error) {
	filter, err := changeFilterOf(r)
	if err != nil {
		return view{}, err
	}
	list, err := r.do.Changes(ctx, filter)
	if err != nil {
		return view{}, err
	}
	shown := auditPage{ChangeList: list, Filter: filter, Form: r.form, First: filter.Before == 0,
		Bare: filter.Kind+filter.Subject+filter.By == "" && filter.Since.IsZero(), Kinds: []choice{{Label: "any"}}}
	for _, kind := range auditKinds {
		shown.Kinds = append(shown.Kinds, choice{Value: kind, Chosen: kind == filter.Kind})
	}
	query := url.Values{}
	for _, name := range []string{"kind", "subject", "by", "since"} {
		if value := r.form.Get(name); value != "" {
			query.Set(name, value)
		}
	}
	shown.File = with("audit.csv", query)
	if list.Next != nil {
		query.Set("cursor", strconv.FormatInt(*list.Next, 10))
		shown.NextTo = "audit?" + query.Encode()
	}
	return view{page: "audit", title: "Audit log", section: "audit", data: shown}, nil
}

// changeFilterOf reads which changes an address asks for.
func changeFilterOf(r *request) (store.ChangeFilter, error) {
	filter := store.ChangeFilter{Kind: r.form.Get("kind"), Subject: strings.TrimSpace(r.form.Get("subject")), By: strings.TrimSpace(r.form.Get("by")), Limit: 50}
	var err error
	if filter.Since, err = instantOf(r.form.Get("since"), r.now); err != nil {
		return filter, fmt.Errorf("%w: since: %w", store.ErrInvalid, err)
	}
	if text := r.form.Get("cursor"); text != "" {
		if filter.Before, err = strconv.ParseInt(text, 10, 64); err != nil {
			return filter, fmt.Errorf("%w: cursor: %w", store.ErrInvalid, err)
		}
	}
	return filter, nil
}

// subjectTo is the page of what a change is about; empty: there is none.
func subjectTo(c store.Change) string {
	switch c.Kind {
	case "run":
		return "runs/" + c.Subject
	case "queue":
		return link("runs", "queue", c.Subject)
	case "schedule":
		return link("schedules", "name", c.Subject)
	case "batch":
		return "batches/" + c.Subject
	case "limit":
		return link("limits", "name", c.Subject)
	default:
		return ""
	}
}

// detailOf is what the audit log says of a change besides its action, on one line.
func detailOf(c store.Change) string {
	if reason := reasonOf(c.Detail); reason != "" {
		return "“" + reason + "”"
	}
	if len(c.Detail) == 0 {
		return ""
	}
	return clip(400, string(c.Detail))
}
