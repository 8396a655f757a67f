package dashboard

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/durable-worker/durable-worker/operate"
	"github.com/durable-worker/durable-worker/store"
)

// stamp is an instant on a page: its age, and when it was exactly.
type stamp struct {
	ISO   string // for machines
	Exact string // in UTC
	Age   string
}

// stampOf makes the stamp of an instant, or of none.
func stampOf(at any, now time.Time) *stamp {
	var t time.Time
	switch at := at.(type) {
	case time.Time:
		t = at
	case *time.Time:
		if at != nil {
			t = *at
		}
	}
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &stamp{ISO: t.Format(time.RFC3339Nano), Exact: t.Format("2006-01-02 15:04:05.000 UTC"), Age: ago(t, now)}
}

// phase is the state of a run as a page shows it: a shape, its word, and what there
// is to add.
type phase struct {
	Icon, Word, More string
}

// phaseOf is the phase of a run.
func phaseOf(r store.Record, now time.Time) phase {
	switch {
	case r.State != store.Pending:
		return phase{Icon: r.State.String(), Word: r.State.String()}
	case r.DueAt.After(now) && (r.Attempt > 0 || r.CrashCount > 0):
		return phase{"retrying", "pending", "retry " + ago(r.DueAt, now)}
	case r.DueAt.After(now):
		return phase{"later", "pending", ago(r.DueAt, now)}
	default:
		return phase{"pending", "pending", "due"}
	}
}

// rowID identifies the row of what has these names: a live update then changes the row
// that the focus is in, and not what happens to have its place.
func rowID(names ...any) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%#v", names))
	return "row-" + hex.EncodeToString(sum[:8])
}

// short is the beginning of an id, enough for people.
func short(id fmt.Stringer) string {
	text := id.String()
	return text[:8] + "…" + text[len(text)-4:]
}

// percent is a share, 0 to 1, in percent.
func percent(share float64) string {
	switch p := 100 * share; {
	case p == 0:
		return "0 %"
	case p < 0.1:
		return "< 0.1 %"
	case p < 10:
		return strings.TrimSuffix(fmt.Sprintf("%.1f", p), ".0") + " %"
	default:
		return fmt.Sprintf("%.0f %%", p)
	}
}

// shareOf is a share, 0 to 1, in whole percent.
func shareOf(fraction float64) int { return int(100*min(max(fraction, 0), 1) + 0.5) }

// overdue is for how long an instant has passed; a dash when it has not.
func overdue(at *time.Time, now time.Time) string {
	if at == nil || at.After(now) {
		return "–"
	}
	return brief(now.Sub(*at))
}

// names are the first names of a list.
func names(all []string) string {
	const most = 3
	if len(all) <= most {
		return clip(200, strings.Join(all, ", "))
	}
	return clip(200, strings.Join(all[:most], ", ")) + fmt.Sprintf(" and %d more", len(all)-most)
}

// span is a duration of the store, or of Go, for people.
func span(d any) string {
	switch d := d.(type) {
	case store.Duration:
		return brief(time.Duration(d))
	case *store.Duration:
		if d != nil {
			return brief(time.Duration(*d))
		}
	case time.Duration:
		return brief(d)
	}
	return "–"
}

// figureText is a figure with what it is.
func figureText(f operate.Figure) string {
	switch f.Is {
	case operate.AtLeast:
		return "more than " + number(int64(f.N))
	case operate.About:
		return "about " + rough(int64(f.N))
	default:
		return number(int64(f.N))
	}
}

// reasonOf is the reason in the detail of a change.
func reasonOf(detail json.RawMessage) string {
	var read struct{ Reason string }
	if json.Unmarshal(detail, &read) != nil {
		return ""
	}
	return cell(read.Reason)
}

// lines are the lines of a text, at most so many, the last ones.
func lines(text *string) []string {
	if text == nil || strings.TrimSpace(*text) == "" {
		return nil
	}
	return strings.Split(strings.TrimRight(strings.ReplaceAll(*text, "\t", "    "), "\n"), "\n")
}

// link is an address of a page with a query: link "runs" "state" "dead" "job" .Name.
func link(path string, pairs ...any) string {
	query := url.Values{}
	for i := 0; i+1 < len(pairs); i += 2 {
		query.Add(fmt.Sprint(pairs[i]), cell(pairs[i+1]))
	}
	if len(query) == 0 {
		return path
	}
	return path + "?" + query.Encode()
}

// headline is the sentence above a run: of one that has ended, without how long it is kept.
func headline(why operate.Explanation) string {
	first, _, _ := strings.Cut(why.Summary, "; it is kept ")
	first, _, _ = strings.Cut(first, "; it may be deleted any time")
	return first
}

// dict hands several values to a part of a page.
func dict(pairs ...any) map[string]any {
	values := map[string]any{}
	for i := 0; i+1 < len(pairs); i += 2 {
		values[fmt.Sprint(pairs[i])] = pairs[i+1]
	}
	return values
}
