package dashboard

import (
	"net/url"
	"strconv"

	"github.com/durable-worker/durable-worker/operate"
	"github.com/durable-worker/durable-worker/store"
)

// notice says on a page what was done. It arrives as words and numbers in the
// address, never as text, so that no link can make the pages say anything else.
type notice struct {
	Done  string
	Parts []noticePart
}

// noticePart is how many runs had one result.
type noticePart struct {
	Kind string // changed, asked or refused
	Text string
}

// noticeNames are the parameters that carry a notice.
var noticeNames = []string{ //nolint:gochecknoglobals // a constant table
	"did", string(store.RunChanged), string(store.CancelRequested), string(store.RunUnchanged),
	string(store.RunConflict), string(store.RunLocked), string(store.RunNotFound)}

// doneWords are what was done, by the word in the address.
var doneWords = map[string]string{ //nolint:gochecknoglobals // a constant table
	"cancel": "Cancelled", "retry": "Retried", "delete": "Deleted", "rerun": "Rerun: this is the new run", "enqueue": "Enqueued: this is the new run",
	"existing": "It was already there: this is the run that has the unique key", "pause": "Paused", "resume": "Resumed", "run": "Created a run: this is it",
	"set": "Changed", "drain": "Draining", "off": "Turned off", "release": "Released", "remove": "Deleted", "acknowledge": "Acknowledged", "login": "Logged in",
	"close": "Closed", "send": "Sent", "resend": "It was sent before, with the same value",
	"forget": "Forgotten: the next execution does the step again",
}

// noticeOf reads what the address says was done.
func noticeOf(form url.Values) *notice {
	done, known := doneWords[form.Get("did")]
	if !known {
		return nil
	}
	n := &notice{Done: done}
	for _, part := range []struct {
		result          store.ChangeResult
		kind, one, more string
	}{
		{store.RunChanged, "changed", "run", "runs"},
		{store.CancelRequested, "asked", "running run was asked to stop", "running runs were asked to stop"},
		{store.RunUnchanged, "refused", "run needed nothing", "runs needed nothing"},
		{store.RunConflict, "refused", "run was in a state that does not allow it", "runs were in states that do not allow it"},
		{store.RunLocked, "refused", "run was locked by a transaction", "runs were locked by transactions"},
		{store.RunNotFound, "refused", "run was not there any more", "runs were not there any more"},
	} {
		if count, err := strconv.ParseInt(form.Get(string(part.result)), 10, 64); err == nil && count > 0 {
			n.Parts = append(n.Parts, noticePart{part.kind, plural(count, part.one, part.more)})
		}
	}
	return n
}

// did are the parameters that say what happened to some runs.
func did(action store.RunAction, b operate.Bulk) url.Values {
	values := url.Values{"did": {string(action)}}
	for result, count := range map[store.ChangeResult]int{
		store.RunChanged: b.Changed, store.CancelRequested: b.CancelRequested, store.RunUnchanged: b.Unchanged,
		store.RunConflict: b.Conflict, store.RunLocked: b.Locked, store.RunNotFound: b.NotFound,
	} {
		if count > 0 {
			values.Set(string(result), strconv.Itoa(count))
		}
	}
	return values
}

// with adds parameters to an address within the pages.
func with(address string, values url.Values) string {
	sign := "?"
	for _, c := range address {
		if c == '?' {
			sign = "&"
		}
	}
	return address + sign + values.Encode()
}

// back is where the form says that the person came from, or a place of ours where it
// says nothing of use.
func back(form url.Values, otherwise string) string {
	address, err := url.Parse(form.Get("back"))
	if err != nil || address.Path == "" || address.Scheme != "" || address.Host != "" || address.User != nil || address.Opaque != "" || !plainPath.MatchString(address.Path) {
		return otherwise
	}
	query := address.Query()
	for _, name := range noticeNames {
		query.Del(name)
	}
	if len(query) == 0 {
		return address.Path
	}
	return address.Path + "?" + query.Encode()
}
