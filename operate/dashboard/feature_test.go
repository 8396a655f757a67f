package dashboard_test

import (
	"context"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"html"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/store"
)

func TestSchedulesAreCreatedWithAPreview(t *testing.T) {
	onEngines(t, func(t *testing.T, db engine) {
		fill(t, db, "x")
		s := newSite(t, db)
		has(t, s.get("schedules"), "schedules/new")
		has(t, s.get("schedules/new"), "<option value=\"fine\"", "Preview")
		order := []string{"name", "weekly", "job", "fine", "rule", "30 4 * * mon", "zone", "Europe/Berlin", "catch_up", "latest", "overlap", "wait", "args", `{"text": "y"}`, "tags", "a, b"}
		a := s.do("POST", "schedules/new", form(append(order, "second", "yes")...))
		require.Equal(t, 200, a.status)
		has(t, a.body, "The next occurrences would be", `value="30 4 * * mon"`)
		_, err := s.op.Schedule(t.Context(), "weekly")
		require.ErrorIs(t, err, store.ErrNotFound, "a preview creates nothing")
		require.Equal(t, "schedules?did=set&name=weekly", sorted(s.post("schedules/new", order...)))
		record, err := s.op.Schedule(t.Context(), "weekly")
		require.NoError(t, err)
		require.Equal(t, []any{store.Cron("30 4 * * mon", "Europe/Berlin"), "mail", "fine", store.OverlapWait, []string{"a", "b"}},
			[]any{record.Rule, record.Queue, record.Job, record.Plan.Overlap, record.Tags})
		require.JSONEq(t, `{"text":"y"}`, string(record.Args))
		s.audited("schedule", "weekly", "created")
		for i, fault := range map[int]string{1: "exists already", 3: "no worker has declared it", 5: "cron"} {
			wrong := append([]string(nil), order...)
			wrong[1] = "another"
			wrong[i] = map[int]string{1: "weekly", 3: "nojob", 5: "61 * * * *"}[i]
			a := s.do("POST", "schedules/new", form(wrong...))
			require.Equal(t, 400, a.status, fault)
			has(t, a.body, fault)
		}
	})
}

// sorted is an address with its parameters in order.
func sorted(address string) string {
	path, query, _ := strings.Cut(address, "?")
	parts := strings.FieldsFunc(query, func(c rune) bool { return c == '?' || c == '&' })
	if len(parts) == 2 && parts[0] > parts[1] {
		parts[0], parts[1] = parts[1], parts[0]
	}
	return path + "?" + strings.Join(parts, "&")
}

// TestRunsAreCopied reads what a page offers to copy as a shell does.
func TestRunsAreCopied(t *testing.T) {
	db := engines["memory"](t)
	made := fillWith(t, db, "x", `it's "so" $HOME \u202e`+"\u202e😀")
	s := newSite(t, db)
	page := s.get("runs/" + made.dead.String())
	has(t, page, "durable-worker enqueue", "curl ", "durable.NewJob[json.RawMessage]")
	texts := regexp.MustCompile(`<pre tabindex="0"><code>(durable-worker [^<]*)</code>`).FindStringSubmatch(page)
	require.Len(t, texts, 2)
	// The words after the program's name, as a shell takes them apart.
	_, words, _ := strings.Cut(html.UnescapeString(texts[1]), " ")
	out, err := exec.CommandContext(t.Context(), "sh", "-c", "printf '%s\\n' "+words).Output()
	require.NoError(t, err)
	var sent note
	require.NoError(t, json.Unmarshal([]byte(strings.Split(string(out), "\n")[3]), &sent))
	require.Equal(t, `it's "so" $HOME \u202e`+"\u202e😀", sent.Text)
}

func TestArgsAreSearched(t *testing.T) {
	onEngines(t, func(t *testing.T, db engine) {
		made := fillWith(t, db, "x", "customer 42 & sons")
		s := newSite(t, db)
		page := s.get("runs?args=" + "42+%26+sons")
		has(t, page, `id="r-`+made.dead.String(), `id="r-`+made.later.String())
		has(t, s.get("runs?args=none"), "No run matches")
		has(t, s.get("runs/change?action=cancel&all=true&args=42"), "args with <strong>42</strong>")
	})
}

// noting is a store that notes what is read of it.
type noting struct {
	engine
	mu    sync.Mutex
	reads map[string]int
}

func (n *noting) note(parts ...any) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.reads[fmt.Sprint(parts...)]++
}

func (n *noting) Survey(ctx context.Context) (store.Survey, error) {
	n.note("survey")
	return n.engine.Survey(ctx)
}

func (n *noting) Workers(ctx context.Context) ([]store.WorkerInfo, error) {
	n.note("workers")
	return n.engine.Workers(ctx)
}

func (n *noting) Series(ctx context.Context, query store.SeriesQuery) ([]store.SeriesPoint, error) {
	n.note("series ", query)
	return n.engine.Series(ctx, query)
}

func (n *noting) Problems(ctx context.Context, filter store.ProblemFilter) ([]store.Problem, error) {
	n.note("problems ", filter)
	return n.engine.Problems(ctx, filter)
}

func TestAPageReadsNothingTwice(t *testing.T) {
	db := &noting{engine: engines["memory"](t)}
	fill(t, db.engine, "x")
	s := newSite(t, db)
	for _, path := range []string{"", "problems", "queues", "jobs", "jobs?name=mail", "runs"} {
		db.reads = map[string]int{}
		s = newSiteOf(t, db, s.op) // with figures of its own
		s.do("GET", path, nil)
		require.NotEmpty(t, db.reads)
		for what, times := range db.reads {
			require.Equal(t, 1, times, "%s: %s", path, what)
		}
	}
}

// vast is a store in which no run matches, however many were examined.
type vast struct{ engine }

func (vast) Runs(context.Context, store.Filter) (store.Page, error) {
	return store.Page{Next: store.RunID{1, 0x9f}, Examined: 20_000}, nil
}

func TestASearchSaysHowManyRunsItRead(t *testing.T) {
	page := newSite(t, vast{engines["memory"](t)}).get("runs?tag=rare")
	has(t, page, "None of the runs that were searched matches", "Read 100,000 runs, back to", "none matches", "Search older ones", "cursor=")
}

func TestAuditIsAFile(t *testing.T) {
	db := engines["memory"](t)
	made := fill(t, db, "x")
	s := newSite(t, db)
	for _, reason := range []string{"=cmd|' /C calc'!A0", "plain, with a comma", "@SUM(A1)"} {
		_, err := s.op.As("=evil").Acknowledge(t.Context(), reason, made.dead)
		require.NoError(t, err)
		_, err = s.op.As("ada").Retry(t.Context(), reason, made.later)
		require.NoError(t, err)
	}
	a := s.do("GET", "audit.csv?kind=run", nil)
	require.Equal(t, 200, a.status)
	require.Equal(t, "text/csv; charset=utf-8", a.header.Get("Content-Type"))
	require.Equal(t, "attachment; filename=audit.csv", a.header.Get("Content-Disposition"))
	rows, err := csv.NewReader(strings.NewReader(a.body)).ReadAll()
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(rows), 2)
	for _, row := range rows {
		for _, cell := range row {
			require.False(t, strings.HasPrefix(cell, "=") || strings.HasPrefix(cell, "@"), cell)
		}
	}
	require.Equal(t, "'=evil", rows[len(rows)-1][2])
	require.Equal(t, 400, s.do("GET", "audit.csv?since=soon", nil).status)
}

// TestOnePageSaysWhichJobFailsMostAndWhy: attempts, dead runs and the reason, since an
// instant.
func TestOnePageSaysWhichJobFailsMostAndWhy(t *testing.T) {
	onEngines(t, func(t *testing.T, db engine) {
		fill(t, db, "order 17 was refused")
		did := store.LaneTally{Queue: "mail", Job: "bad", Tally: store.Tally{Succeeded: 5000, Failed: 3000, Dead: 2000}} // so many that those of the worker hardly count
		workers, err := db.Workers(t.Context())
		require.NoError(t, err)
		_, err = db.ReportWorker(t.Context(), store.WorkerReport{Worker: store.WorkerID{Name: "other", Instance: store.NewRunID()}, Number: 1, Stopped: true,
			Presence: workers[0].Presence, Did: []store.LaneTally{did}})
		require.NoError(t, err)
		s := newSite(t, db)
		for _, path := range []string{"problems", "problems?since=1h"} {
			page := s.get(path)
			has(t, page, "Jobs that fail most", `href="./jobs?name=bad">bad</a>`, "50 %")
			has(t, page, ">order # was refused</a>")
		}
		lacks(t, s.get("problems?since=2090-01-01"), ">order # was refused</a>")
		require.Equal(t, 400, s.do("GET", "problems?since=noonish", nil).status)
	})
}
