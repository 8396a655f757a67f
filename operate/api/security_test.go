package api_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/operate"
	"github.com/durable-worker/durable-worker/operate/access"
	"github.com/durable-worker/durable-worker/operate/api"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/backend"
)

// target is a path of an operation, of a run and a bulk change that there are not.
func target(pattern string) (method, path string) {
	method, path, _ = strings.Cut(pattern, " ")
	return method, strings.NewReplacer("{id}", "0190c5a0-7d6c-7b0e-9f6e-3a1f4b2c5d6e", "{n}", "7", "{name}", "x").Replace(path)
}

// TestEveryOperationKnowsWhoAsks goes through the operations that there are.
func TestEveryOperationKnowsWhoAsks(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	require.Greater(t, len(api.Patterns()), 40)
	for _, pattern := range api.Patterns() {
		method, path := target(pattern)
		for _, token := range []string{"", "wrong-0123456789abcdef"} {
			require.Equal(t, "unauthorized", b.as(token).want(401, method, path, "")["code"], pattern)
		}
		if method != http.MethodGet {
			refused := b.as(viewerToken).want(403, method, path, "")
			require.Equal(t, "forbidden", refused["code"], pattern)
			require.Equal(t, "operator", refused["role"])
			for _, origin := range []string{"https://evil.example", "null"} {
				require.Equal(t, "cross_origin", b.want(403, method, path, "", "Origin", origin)["code"], pattern)
			}
			require.Equal(t, "cross_origin", b.want(403, method, path, "", "Sec-Fetch-Site", "cross-site")["code"], pattern)
		}
		refused := b.want(400, method, path+"?surprise=1", "")
		require.Equal(t, "surprise", refused["errors"].([]any)[0].(map[string]any)["parameter"], pattern)
	}
	require.Empty(t, b.want(200, "GET", "/audit", "")["changes"], "nothing was changed")
}

// TestReadingChangesNothing asks for everything that may be read, as an operator.
func TestReadingChangesNothing(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.enqueue(`{"n":1}`)
	b.want(201, "PUT", "/schedules?name=s", `{"job":"mail","rule":{"every":"1h"}}`)
	state := func() string {
		var all []string
		for _, path := range []string{"/runs", "/schedules", "/audit", "/limits", "/counts"} {
			all = append(all, b.send("GET", path, "").Body.String())
		}
		return strings.Join(all, "")
	}
	before := state()
	for _, pattern := range api.Patterns() {
		method, path := target(pattern)
		if method == http.MethodGet && path != "/events" {
			b.send("GET", path, "")
			b.send("HEAD", path, "")
		}
	}
	require.Equal(t, before, state())
}

func TestAViewerSeesNoArgs(t *testing.T) {
	onEach(t, func(t *testing.T, b *bench) {
		job := durable.NewJob[map[string]any]("answers")
		worker := durable.NewWorker(b.store, durable.WorkerConfig{})
		durable.Register(worker, job, func(ctx context.Context, run *durable.Run[map[string]any]) error {
			return errors.Join(run.Checkpoint(ctx, map[string]string{"c": "canary"}), run.SetResult(map[string]string{"r": "canary"}))
		})
		b.declare(job.Info())
		id := b.want(201, "POST", "/runs", `{"job":"answers","args":{"a":"canary"}}`)["id"].(string)
		b.want(201, "PUT", "/schedules?name=s", `{"job":"mail","rule":{"every":"1h"},"args":{"a":"canary"}}`)
		stop := b.work(worker)
		b.want(200, "GET", "/runs/"+id+"/wait", "")
		stop()
		require.Contains(t, b.send("GET", "/runs/"+id, "").Body.String(), "canary", "an operator sees them")

		viewer := b.as(viewerToken)
		require.Equal(t, map[string]any{"args": 14.0, "result": 14.0, "checkpoint": 14.0}, viewer.want(200, "GET", "/runs/"+id, "")["hidden"])
		for _, pattern := range api.Patterns() {
			method, path := target(strings.Replace(pattern, "{id}", id, 1))
			if method != http.MethodGet || path == "/events" {
				continue
			}
			if path == "/schedules/preview" || path == "/limits/key" {
				path += "?name=s"
			}
			require.NotContains(t, viewer.send("GET", path, "").Body.String(), "canary", path)
		}
		all, err := api.New(b.op, api.Config{Auth: access.Tokens(operatorToken, viewerToken), Args: access.Viewer})
		require.NoError(t, err)
		viewer.handler = all
		require.Contains(t, viewer.send("GET", "/runs/"+id, "").Body.String(), "canary", "unless the program allows it")
	})
}

func TestHostileRequestsAreRefused(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	id := b.enqueue(`{}`)
	deep := strings.Repeat("[", 200) + strings.Repeat("]", 200)
	for _, c := range []struct {
		method, path, body string
		status             int
		where              string // of the first fault
	}{
		{"GET", "/runs?limit=0", "", 400, "limit"},
		{"GET", "/runs?limit=201", "", 400, "limit"},
		{"GET", "/runs?limit=1&limit=2", "", 400, "limit"},
		{"GET", "/runs?limit=9999999999999999999999", "", 400, "limit"},
		{"GET", "/runs?state=lost", "", 400, "state"},
		{"GET", "/runs?state=", "", 400, "state"},
		{"GET", "/runs?job=%00", "", 400, "job"},
		{"GET", "/runs?job=%ff", "", 400, "job"},
		{"GET", "/runs?job=" + strings.Repeat("x", 1001), "", 400, "job"},
		{"GET", "/runs?" + strings.Repeat("job=a&", 201), "", 400, "job"},
		{"GET", "/runs?id=x", "", 400, "id"},
		{"GET", "/runs?cursor=%27%3B--", "", 400, "cursor"},
		{"GET", "/runs?since=yesterday", "", 400, "since"},
		{"GET", "/runs?since=-1h", "", 400, "since"},
		{"GET", "/runs?since=99999-01-01T00:00:00Z", "", 400, "since"},
		{"GET", "/runs?%zz", "", 400, ""},
		{"GET", "/runs?a;b", "", 400, ""},
		{"GET", "/audit?cursor=0", "", 400, "cursor"},
		{"GET", "/locks?limit=x", "", 400, "limit"},
		{"GET", "/limits?caps=yes", "", 400, "caps"},
		{"GET", "/runs/x", "", 400, "id"},
		{"POST", "/runs", "", 400, "/job"},
		{"POST", "/runs", "[]", 400, ""},
		{"POST", "/runs", "null", 400, ""},
		{"POST", "/runs", `"mail"`, 400, ""},
		{"POST", "/runs", `{"job":"mail"`, 400, ""},
		{"POST", "/runs", `{"job":"mail"} {}`, 400, ""},
		{"POST", "/runs", `{"job":"mail","job":"mail"}`, 400, "/job"},
		{"POST", "/runs", `{"Job":"mail"}`, 400, "/Job"},
		{"POST", "/runs", `{"job":"mail","a/b~c":1}`, 400, "/a~1b~0c"},
		{"POST", "/runs", `{"job":7}`, 400, "/job"},
		{"POST", "/runs", `{"job":null}`, 400, "/job"},
		{"POST", "/runs", `{"job":"mail","priority":"high"}`, 400, "/priority"},
		{"POST", "/runs", `{"job":"mail","priority":1.5}`, 400, "/priority"},
		{"POST", "/runs", `{"job":"mail","priority":1e99}`, 400, "/priority"},
		{"POST", "/runs", `{"job":"mail","timeout":"soon"}`, 400, "/timeout"},
		{"POST", "/runs", `{"job":"mail","timeout":5}`, 400, "/timeout"},
		{"POST", "/runs", `{"job":"mail","due_at":"tomorrow"}`, 400, "/due_at"},
		{"POST", "/runs", `{"job":"mail","id":"x"}`, 400, "/id"},
		{"POST", "/runs", `{"job":"mail","tags":"x"}`, 400, "/tags"},
		{"POST", "/runs", `{"job":"mail","limited_by":["a!b"]}`, 400, "/limited_by/0"},
		{"POST", "/runs", `{"job":"mail","unique":"a","replace":"b"}`, 400, "/replace"},
		{"POST", "/runs", `{"job":"mail","quiet":"1s"}`, 400, "/quiet"},
		{"POST", "/runs", `{"job":"mail","unique_for":"1s"}`, 400, "/unique_for"},
		{"POST", "/runs", `{"runs":{}}`, 400, "/runs"},
		{"POST", "/runs", `{"runs":[1]}`, 400, "/runs/0"},
		{"POST", "/runs", `{"runs":[{"job":"mail"},{"job":"mail","surprise":1}]}`, 400, "/runs/1/surprise"},
		{"POST", "/runs", `{"job":"mail","args":` + deep + `}`, 400, ""},
		{"POST", "/runs", `{"job":"mail","args":"\u0000"}`, 400, "/args"},
		{"POST", "/runs", "{\"job\":\"mail\",\"args\":\"\xff\"}", 400, ""},
		{"POST", "/runs", `{"job":"mail","args":NaN}`, 400, ""},
		{"POST", "/runs", `{"job":"mail","args":{},"id":"` + strings.Repeat("0", 36) + `"}`, 400, "/id"},
		{"POST", "/runs/" + id + "/cancel", `{"reason":"` + strings.Repeat("x", 1001) + `"}`, 400, ""},
		{"POST", "/runs/" + id + "/cancel?reason=x", ``, 400, "reason"},
		{"POST", "/bulk", `{"action":"cancel","all":"yes"}`, 400, "/all"},
		{"POST", "/bulk", `{"action":"cancel","filter":{"statee":["dead"]}}`, 400, "/filter/statee"},
		{"POST", "/bulk", `{"action":"cancel","filter":[]}`, 400, "/filter"},
		{"PUT", "/schedules?name=a%20b", `{"job":"mail","rule":{"every":"1h"}}`, 400, "name"},
		{"PUT", "/schedules?name=a", `{"job":"mail","rule":{"hourly":true}}`, 400, "/rule/hourly"},
		{"PUT", "/schedules?name=a", `{"job":"mail","rule":{"every":"1h"},"plan":{"overlap":"maybe"}}`, 400, "/plan/overlap"},
		{"PUT", "/schedules?name=a", `{"job":"mail","rule":{"cron":"x"}}`, 400, "/rule/cron"},
		{"PUT", "/schedules?name=a", `{"job":"mail","rule":{"every":"1h"},"priority":99}`, 400, "/priority"},
		{"POST", "/schedules/preview", `{"rule":{"cron":"x"}}`, 400, "/rule/cron"},
		{"POST", "/queues/set", `{"name":"mail"}`, 400, "/max_concurrent"},
		{"POST", "/runs", `{"job":"mail","due_at":"2030-01-01T00:00:00Z","after":"1s"}`, 400, "/after"},
		{"POST", "/runs", `{"job":"mail","priority":99}`, 422, "/priority"},
		{"POST", "/runs", `{"runs":[{"job":"mail"},{"job":"mail","queue":"","tags":[""]}]}`, 422, "/runs/1/queue"},
		{"PUT", "/schedules", `{"job":"mail","rule":{"every":"1h"}}`, 400, "name"},
	} {
		refused := b.want(c.status, c.method, c.path, c.body)
		require.Equal(t, "invalid", refused["code"], "%s %s", c.path, c.body)
		fault := refused["errors"].([]any)[0].(map[string]any)
		if c.where != "" {
			require.Contains(t, []any{fault["pointer"], fault["parameter"]}, c.where, "%s %s: %v", c.path, c.body, fault)
		}
		require.NotEmpty(t, fault["detail"])
	}
	require.Len(t, b.want(200, "GET", "/runs", "")["runs"], 1, "nothing was stored")
}

func TestAllFaultsAreNamedTogether(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	refused := b.want(400, "PUT", "/schedules?names=x&x=y", `{"jobb":"mail","rule":{"evry":"1h"},"priority":"high"}`)
	require.Len(t, refused["errors"], 6)
	body := &strings.Builder{}
	for i := range 100 {
		fmt.Fprintf(body, `"m%d":1,`, i)
	}
	require.Len(t, b.want(400, "POST", "/runs", "{"+strings.TrimSuffix(body.String(), ",")+"}")["errors"], 20)
}

func TestWhereThereIsNothing(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for _, path := range []string{"/", "/nowhere", "/runs/", "//runs", "/runs/../runs", "/debug/pprof/", "/metrics", "/openapi.yaml", "/queues/mail/../..", "/runs/%2e%2e%2fqueues"} {
		require.Equal(t, "not_found", b.want(404, "GET", path, "")["code"], path)
	}
	for method, allow := range map[string]string{"PUT": "GET, POST", "BREW": "GET, POST", "OPTIONS": "GET, POST"} {
		w := b.send(method, "/runs", "")
		require.Equal(t, 405, w.Code)
		require.Equal(t, allow, w.Header().Get("Allow"))
	}
	require.Equal(t, 415, b.send("POST", "/runs", `{"job":"mail"}`, "Content-Type", "application/x-www-form-urlencoded").Code)
	require.Equal(t, 421, hostCheck(t, b).Code)
}

func hostCheck(t *testing.T, b *bench) *httptest.ResponseRecorder {
	t.Helper()
	h, err := api.New(b.op, api.Config{Auth: access.Tokens(operatorToken, ""), Hosts: []string{"durable.example"}})
	require.NoError(t, err)
	other := *b
	other.handler = h
	return other.send("GET", "/runs", "")
}

// away is a store that cannot be reached, and says what clients must not read.
type away struct{ store.Store }

var errAway = errors.New("dial tcp 10.0.0.7:5432: password authentication failed for user canary")

func (away) Run(context.Context, store.RunID) (store.Record, error)      { return store.Record{}, errAway }
func (away) Runs(context.Context, store.Filter) (store.Page, error)      { return store.Page{}, errAway }
func (away) Queues(context.Context) ([]store.QueueInfo, error)           { return nil, errAway }
func (away) Jobs(context.Context) ([]store.JobInfo, error)               { return nil, errAway }
func (away) Workers(context.Context) ([]store.WorkerInfo, error)         { return nil, errAway }
func (away) Survey(context.Context) (store.Survey, error)                { return store.Survey{}, errAway }
func (away) Counts(context.Context) (map[store.State]store.Count, error) { return nil, errAway }
func (away) Operate(context.Context, store.RunCommand) ([]store.ChangedRun, error) {
	return nil, errAway
}

func TestErrorsOfTheDatabaseStayInTheLog(t *testing.T) {
	t.Parallel()
	for transient, status := range map[bool]int{true: 503, false: 500} {
		b := newBench(t)
		o := operate.New(away{b.store}, operate.Config{Transient: func(error) bool { return transient }})
		var err error
		b.handler, err = api.New(o, api.Config{Auth: access.Tokens(operatorToken, viewerToken), Logger: newLogger(b)})
		require.NoError(t, err)
		for _, path := range []string{"/runs", "/queues", "/jobs", "/workers", "/survey", "/counts", "/attention", "/runs/0190c5a0-7d6c-7b0e-9f6e-3a1f4b2c5d6e"} {
			w := b.send("GET", path, "")
			require.Equal(t, status, w.Code, path)
			require.NotContains(t, w.Body.String(), "canary")
			require.NotContains(t, w.Body.String(), "10.0.0.7")
			if status == 503 {
				require.NotEmpty(t, w.Header().Get("Retry-After"))
			}
		}
		b.want(status, "POST", "/runs", `{"job":"mail"}`)
		b.want(status, "POST", "/runs/0190c5a0-7d6c-7b0e-9f6e-3a1f4b2c5d6e/cancel", "")
		require.Contains(t, b.log.String(), "canary")
		require.NotContains(t, b.as(viewerToken).send("GET", "/findings", "").Body.String(), "canary")
	}
}

func TestASchemaThatDoesNotFitIsNamed(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	db, err := backend.Open(t.Context(), sqliteAddress(t), backend.Config{})
	require.NoError(t, err)
	t.Cleanup(db.Close)
	b.handler, err = api.New(operate.New(db, operate.Config{Transient: backend.Transient}), api.Config{Auth: access.Tokens(operatorToken, viewerToken)})
	require.NoError(t, err)
	for _, target := range []string{"GET /runs", "GET /queues", "POST /runs"} {
		method, path, _ := strings.Cut(target, " ")
		body := ""
		if method == "POST" {
			body = `{"job":"mail"}`
		}
		require.Equal(t, "not_migrated", b.want(503, method, path, body)["code"], target)
	}
}

// hanging is a store that does not answer.
type hanging struct{ store.Store }

func (hanging) Runs(ctx context.Context, _ store.Filter) (store.Page, error) {
	<-ctx.Done()
	return store.Page{}, ctx.Err()
}

func TestAnAnswerDoesNotTakeForever(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	var err error
	b.handler, err = api.New(operate.New(hanging{b.store}, operate.Config{}), api.Config{Auth: access.Tokens(operatorToken, "")})
	require.NoError(t, err)
	doc := b.doc
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		in := &bench{t: t, handler: b.handler, doc: doc, token: operatorToken}
		require.Equal(t, "unreachable", in.want(503, "GET", "/runs", "")["code"])
		require.Equal(t, 20*time.Second, time.Since(began))
	})
}

func TestAnAPIHasAnAuth(t *testing.T) {
	t.Parallel()
	_, err := api.New(newBench(t).op, api.Config{})
	require.ErrorContains(t, err, "no Auth")
}

// TestEventsAreStreamed reads hints over a real connection.
func TestEventsAreStreamed(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	server := httptest.NewServer(b.handler)
	t.Cleanup(server.Close)
	ctx, cancel := context.WithCancel(t.Context())
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL+"/events", nil)
	require.NoError(t, err)
	request.Header.Set("Authorization", "Bearer "+viewerToken)
	answer, err := server.Client().Do(request)
	require.NoError(t, err)
	lines := bufio.NewScanner(answer.Body)
	until := func(want string) string {
		for lines.Scan() {
			if strings.HasPrefix(lines.Text(), want) {
				lines.Scan()
				return lines.Text()
			}
		}
		t.Fatalf("the stream has ended without %q: %v", want, lines.Err())
		return ""
	}
	var figures map[string]any
	require.NoError(t, json.Unmarshal([]byte(strings.TrimPrefix(until("event: survey"), "data: ")), &figures))
	require.Contains(t, figures, "due")
	b.enqueue(`{}`)
	require.Contains(t, until("event: changed"), `"runs"`)
	cancel()
	_, _ = io.ReadAll(answer.Body)
	require.NoError(t, answer.Body.Close())
}

func newLogger(b *bench) *slog.Logger { return slog.New(slog.NewTextHandler(b.log, nil)) }

// FuzzAQueryAndABodyAreAnswered: whatever comes is answered as the description says.
func FuzzAQueryAndABodyAreAnswered(f *testing.F) {
	f.Add("state=dead&since=1h", `{"job":"mail"}`)
	f.Add("limit=&limit=%ff;", `{"runs":[{"job":"mail","args":[1e999]}]}`)
	f.Add("", "{\"a\":\"\\ud800\"}")
	f.Fuzz(func(t *testing.T, query, body string) {
		b := newBench(t)
		for _, status := range []int{
			b.send("GET", "/runs?"+url.PathEscape(query), "").Code,
			b.send("POST", "/runs", body, "Content-Type", "application/json").Code,
			b.send("POST", "/bulk", body, "Content-Type", "application/json").Code,
		} {
			require.Less(t, status, 500, "%q %q", query, body)
		}
	})
}
