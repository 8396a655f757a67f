package dashboard_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/operate/access"
	"github.com/durable-worker/durable-worker/operate/dashboard"
	"github.com/durable-worker/durable-worker/store"
)

// TestEveryRouteIsReadOnlyForViewers asks for every page that the router has, so that no new
// one is forgotten: each POST is refused and changes nothing, and no GET shows args.
func TestEveryRouteIsReadOnlyForViewers(t *testing.T) {
	db := engines["sqlite"](t)
	made := fillWith(t, db, "x", "canary-7f3")
	s := newSite(t, db)
	workers, err := db.Workers(t.Context())
	require.NoError(t, err)
	s.role = access.Viewer
	batch := batchOf(t, db, "canary-7f3").String()
	dead := made.dead.String()
	// What a page needs to be found; a page that is not named here needs nothing.
	needs := map[string][]string{
		"GET /runs": {"", "?state=dead", "?find=" + dead[:23]}, "GET /runs/new": {"?job=fine"}, "GET /runs/change": {"?action=retry&id=" + dead, "?action=retry&all=true"},
		"GET /queues/change": {"?name=mail&action=pause"}, "GET /jobs": {"", "?name=bad"}, "GET /schedules": {"", "?name=nightly"},
		"GET /schedules/change": {"?name=nightly&action=run"}, "GET /schedules/edit": {"?name=nightly"}, "GET /limits": {"", "?name=api&key=key"},
		"GET /runs/{id}/send": {"?name=approved"}, "GET /limits/change": {"?name=api&action=set"}, "GET /locks/release": {"?name=reindex&slot=0"},
		"GET /batches": {"", "?state=running&name=pages"}, "GET /batches/{id}/change": {"?action=close", "?action=cancel", "?action=retry"},
	}
	before, err := s.op.Changes(t.Context(), store.ChangeFilter{})
	require.NoError(t, err)
	group := problemOf(s, "bad")
	needs["GET /problems/change"] = []string{"?action=retry&group=" + group}
	for _, pattern := range dashboard.Patterns() {
		method, path, _ := strings.Cut(pattern, " ")
		if strings.HasPrefix(path, "/batches/") {
			path = strings.Replace(path, "{id}", batch, 1)
		}
		path = strings.NewReplacer("/{$}", "", "{id}", dead, "{n}", "1", "{instance}", workers[0].Instance.String()).Replace(strings.TrimPrefix(path, "/"))
		path = strings.TrimPrefix(path, "{$}")
		switch {
		case method == "POST":
			a := s.do("POST", path, form("action", "retry", "id", dead, "name", "mail", "group", group, "job", "fine", "args", "{}", "word", "retry", "reason", "x"))
			require.Equal(t, 403, a.status, pattern)
		case pattern == "/", pattern == "GET /bulk/{n}", pattern == "GET /runs/{id}/forget": // there is none; of a step see TestViewersSeeNoValuesOfSteps
		default:
			for _, query := range append([]string(nil), orNone(needs[pattern])...) {
				a := s.do("GET", path+query, nil)
				require.Contains(t, []int{200, 303}, a.status, "%s%s: %s", pattern, query, a.body)
				lacks(t, a.body, "canary-7f3")
			}
		}
	}
	for _, path := range []string{"runs?args=canary", "runs/change?action=cancel&all=true&args=canary"} {
		a := s.do("GET", path, nil)
		require.Equal(t, 403, a.status, "who may not see args may not search them")
	}
	after, err := s.op.Changes(t.Context(), store.ChangeFilter{})
	require.NoError(t, err)
	require.Equal(t, before, after)
	require.Equal(t, store.Dead, s.state(made.dead))
}

// orNone are the queries of a page: one without any, when none is needed.
func orNone(queries []string) []string {
	if queries == nil {
		return []string{""}
	}
	return queries
}

// problemOf is the group of the problems of a job.
func problemOf(s *site, job string) string {
	for _, one := range groupOfPage.FindAllStringSubmatch(s.get("problems"), -1) {
		if strings.Contains(s.get("problems/change?action=retry&group="+one[1]), " of "+job+"?") {
			return one[1]
		}
	}
	s.t.Fatalf("job %s has no problem", job)
	return ""
}
