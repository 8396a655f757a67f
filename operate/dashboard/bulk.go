package dashboard

import (
	"context"
	"fmt"
	"net/url"
	"strconv"

	"github.com/durable-worker/durable-worker/operate"
	"github.com/durable-worker/durable-worker/store"
)

// bulkPage shows how far a change of all runs that match has come.
type bulkPage struct {
	operate.BulkStatus

	Verb     string
	About    string // which runs are changed
	Parts    []noticePart
	Continue string // address of the question that continues it; empty: there is nothing left
	To       string // the runs that it is about
}

// bulkList is the bulk changes of this process, and those of all in the audit log.
type bulkList struct {
	Own []bulkPage
	All []store.Change
}

func (d *dashboard) bulks(ctx context.Context, r *request) (view, error) {
	var shown bulkList
	for _, status := range r.do.BulkList() {
		shown.Own = append(shown.Own, bulkPageOf(status))
	}
	list, err := r.do.Changes(ctx, store.ChangeFilter{Kind: "bulk", Limit: 20})
	shown.All = list.Changes
	return view{page: "bulks", title: "Bulk changes", section: "runs", data: shown}, err
}

func (d *dashboard) bulk(_ context.Context, r *request) (view, error) {
	n, err := bulkNumber(r)
	if err != nil {
		return view{}, err
	}
	status, err := r.do.Bulk(n)
	if err != nil {
		return view{}, err
	}
	shown := bulkPageOf(status)
	return view{page: "bulk", title: shown.Verb + " " + shown.About, section: "runs", data: shown}, nil
}

func bulkNumber(r *request) (int64, error) {
	n, err := strconv.ParseInt(r.PathValue("n"), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%w: %q is not the number of a bulk change", store.ErrInvalid, clip(50, r.PathValue("n")))
	}
	return n, nil
}

func bulkPageOf(status operate.BulkStatus) bulkPage {
	filter := words(status.Filter)
	shown := bulkPage{BulkStatus: status, Verb: verbs[status.Action], About: "all that match", To: "runs?" + filter.Encode()}
	if status.Batch != nil {
		shown.About, shown.To = "dead members of a batch", "batches/"+status.Batch.String()
	}
	if n := noticeOf(did(status.Action, status.Progress)); n != nil {
		shown.Parts = n.Parts
	}
	if next := status.Progress.Next; status.State != operate.BulkExecuting && next != (store.RunID{}) && status.Batch == nil {
		query := url.Values{"action": {string(status.Action)}, "all": {"true"}, "cursor": {next.String()}, "reason": {status.Reason}}
		for name, values := range filter {
			query[name] = values
		}
		shown.Continue = "runs/change?" + query.Encode()
	}
	return shown
}

func (d *dashboard) stopBulk(_ context.Context, r *request) (view, error) {
	n, err := bulkNumber(r)
	if err != nil {
		return view{}, err
	}
	_, err = r.do.StopBulk(n)
	return view{to: "bulk/" + strconv.FormatInt(n, 10)}, err
}
