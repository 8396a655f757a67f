package dashboard_test

import (
	"html"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/operate"
	"github.com/durable-worker/durable-worker/operate/access"
	"github.com/durable-worker/durable-worker/operate/dashboard"
	"github.com/durable-worker/durable-worker/store/memory"
)

func TestNewWantsAnOperatorAndAnAuth(t *testing.T) {
	_, err := dashboard.New(nil, dashboard.Config{Auth: access.Loopback()})
	require.ErrorContains(t, err, "no operator")
	_, err = dashboard.New(operate.New(memory.New(memory.Config{}), operate.Config{}), dashboard.Config{})
	require.ErrorContains(t, err, "no Auth")
}

// links are the addresses in a page, and the actions of its forms.
var links = regexp.MustCompile(`(?:href|src|action)="([^"]*)"`)

// posting are the forms that change something.
var posting = regexp.MustCompile(`<form[^>]*method="post"[^>]*>`)

// crawl visits every address that the pages lead to, from their root on, and returns
// what it has read by address. Everything has to be there and within the mount.
func crawl(s *site) map[string]string {
	pages := map[string]string{}
	next := []string{""}
	for len(next) > 0 {
		path := next[0]
		next = next[1:]
		if _, seen := pages[path]; seen {
			continue
		}
		a := s.do("GET", path, nil)
		if a.status == 303 {
			continue
		}
		require.Equal(s.t, 200, a.status, "GET %s: %.300s\n%s", path, a.body, s.log)
		pages[path] = a.body
		if !strings.HasPrefix(a.header.Get("Content-Type"), "text/html") {
			continue
		}
		for _, form := range posting.FindAllString(a.body, -1) {
			require.Regexp(s.t, `action="\.`, form, path)
		}
		for _, m := range links.FindAllStringSubmatch(posting.ReplaceAllString(a.body, ""), -1) {
			to := html.UnescapeString(m[1])
			if strings.HasPrefix(to, "#") {
				continue
			}
			require.False(s.t, strings.HasPrefix(to, "/") || strings.Contains(to, ":/"), "%s leads to %q, which is not relative", path, to)
			target, err := a.at.Parse(to)
			require.NoError(s.t, err)
			below, ok := strings.CutPrefix(target.RequestURI(), mount+"/")
			require.True(s.t, ok, "%s leads to %q, out of the pages", path, to)
			if below != "runs/change" { // of the form that chooses runs; without any it is refused
				next = append(next, below)
			}
		}
	}
	return pages
}

func TestEveryPageIsReachedByRelativeLinks(t *testing.T) {
	onEngines(t, func(t *testing.T, db engine) {
		made := fill(t, db, "all is well")
		pages := crawl(newSite(t, db))
		for _, path := range []string{"", "runs", "problems", "queues", "jobs", "schedules", "workers", "limits", "locks", "audit", "health",
			"runs/" + made.succeeded.String(), "runs/" + made.dead.String(), "schedules?name=nightly", "limits?name=api"} {
			_, reached := pages[path]
			require.True(t, reached, "no link leads to %q", path)
		}
	})
}

func TestRootWithoutItsSlash(t *testing.T) {
	pages, err := dashboard.New(operate.New(memory.New(memory.Config{}), operate.Config{}), dashboard.Config{Auth: access.Loopback()})
	require.NoError(t, err)
	r := httptest.NewRequest(http.MethodGet, "http://ops.example/ops/durable?a=b", nil)
	w := httptest.NewRecorder()
	http.StripPrefix("/ops/durable", pages).ServeHTTP(w, r)
	require.Equal(t, 303, w.Code)
	to, err := r.URL.Parse(w.Header().Get("Location"))
	require.NoError(t, err)
	require.Equal(t, "http://ops.example/ops/durable/", to.String())
}

func TestPagesOfAnEmptyStore(t *testing.T) {
	onEngines(t, func(t *testing.T, db engine) {
		for path, body := range crawl(newSite(t, db)) {
			if strings.HasPrefix(path, "assets/") || strings.HasPrefix(path, "audit.csv") {
				continue
			}
			require.True(t, strings.Contains(body, "<h1"), path)
		}
	})
}

func TestWhatDoesNotExist(t *testing.T) {
	s := newSite(t, memory.New(memory.Config{}))
	for path, status := range map[string]int{
		"nowhere": 404, "runs/0190c5a0-7d6c-7b0e-9f6e-3a1f4b2c5d6e": 404, "runs/xyz": 400, "runs?state=odd": 400, "runs?since=yesterday": 400,
		"runs?cursor=7": 400, "schedules?name=none": 404, "limits?name=none": 404, "workers/none": 404, "bulk/7": 404, "bulk/x": 400, "audit?cursor=x": 400,
		"runs/new?job=none": 404, "queues/change?name=a&action=explode": 400, "assets/none.js": 404,
	} {
		a := s.do("GET", path, nil)
		require.Equal(t, status, a.status, "%s: %.300s", path, a.body)
	}
}

func TestSearchLeadsToTheRun(t *testing.T) {
	db := engines["memory"](t)
	made := fill(t, db, "x")
	s := newSite(t, db)
	a := s.do("GET", "runs?find="+made.dead.String(), nil)
	require.Equal(t, 303, a.status)
	require.Equal(t, "./runs/"+made.dead.String(), a.header.Get("Location"))
	a = s.do("GET", "runs?find="+url.QueryEscape("user 42"), nil)
	require.Equal(t, "./runs?tag=user+42", a.header.Get("Location"))
}

func TestListsAreNarrowed(t *testing.T) {
	onEngines(t, func(t *testing.T, db engine) {
		made := fill(t, db, "reason 7")
		s := newSite(t, db)
		row := func(id any) string { return `id="r-` + id.(interface{ String() string }).String() }
		all := s.get("runs")
		for _, id := range []any{made.succeeded, made.dead, made.pending, made.later} {
			has(t, all, row(id))
		}
		dead := s.get("runs?state=dead&job=bad")
		has(t, dead, row(made.dead))
		lacks(t, dead, row(made.succeeded))
		has(t, dead, "reason 7")
		has(t, s.get("runs?queue=mail"), row(made.succeeded))
		lacks(t, s.get("runs?queue=mail"), row(made.dead))
		has(t, s.get("runs?tag=none"), "No run matches")
	})
}

func TestRunPageTellsItsLife(t *testing.T) {
	onEngines(t, func(t *testing.T, db engine) {
		made := fill(t, db, "smtp 550")
		s := newSite(t, db)
		dead := s.get("runs/" + made.dead.String())
		for _, text := range []string{"attempt 1 failed", "attempt 2 failed, the last one", "smtp 550", "Retry…", "Delete…", "on web-1"} {
			has(t, dead, text)
		}
		lacks(t, dead, "Cancel…")
		succeeded := s.get("runs/" + made.succeeded.String())
		for _, text := range []string{"attempt 1 succeeded", "log, 1 line", "&#34;smtp 550&#34;"} {
			has(t, succeeded, text)
		}
		has(t, s.get("runs/"+made.pending.String()), "Cancel…")
	})
}
