package api_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/internal/pgtest"
	"github.com/durable-worker/durable-worker/lock"
	"github.com/durable-worker/durable-worker/operate"
	"github.com/durable-worker/durable-worker/operate/access"
	"github.com/durable-worker/durable-worker/operate/api"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/backend"
)

const (
	operatorToken = "operator-0123456789abcdef"
	viewerToken   = "viewer-0123456789abcdef"
)

// bench is an API on a store, with what it logs.
type bench struct {
	t       *testing.T
	store   backend.Store
	op      *operate.Operator
	handler http.Handler
	doc     *openapi3.T
	log     *bytes.Buffer
	token   string
}

// newBench is an API on an empty store in memory with the job mail.
func newBench(t *testing.T) *bench {
	t.Helper()
	return benchOn(t, "memory:")
}

func benchOn(t *testing.T, address string) *bench {
	t.Helper()
	schema := "api_" + strings.ToLower(rand.Text()[:16])
	if strings.HasPrefix(address, "postgres") { // one database for all tests, and a schema for each
		t.Cleanup(func() { pgtest.Execute(t, address, "DROP SCHEMA IF EXISTS "+schema+" CASCADE") })
	}
	db, err := backend.Open(t.Context(), address, backend.Config{Schema: schema, MaxConns: 5})
	require.NoError(t, err)
	t.Cleanup(db.Close)
	_, err = db.Migrate(t.Context())
	require.NoError(t, err)
	b := benchOf(t, db, described(t))
	b.store = db
	b.declare(durable.NewJob[map[string]any]("mail").Info(), durable.NewJob[map[string]any]("report", durable.OnQueue("slow")).Info())
	return b
}

// benchOf is an API on a store.
func benchOf(t *testing.T, db interface {
	store.Store
	Locks() lock.Locks
}, doc *openapi3.T) *bench {
	t.Helper()
	b := &bench{t: t, doc: doc, log: &bytes.Buffer{}, token: operatorToken}
	b.op = operate.New(db, operate.Config{Locks: db.Locks(), Transient: backend.Transient})
	t.Cleanup(b.op.Close)
	var err error
	b.handler, err = api.New(b.op, api.Config{Auth: access.Tokens(operatorToken, viewerToken), Logger: slog.New(slog.NewTextHandler(b.log, nil))})
	require.NoError(t, err)
	return b
}

// declare declares jobs as a worker does.
func (b *bench) declare(jobs ...store.JobInfo) {
	b.t.Helper()
	require.NoError(b.t, b.store.Declare(b.t.Context(), store.Declaration{Worker: store.WorkerID{Name: "w"}, Jobs: jobs}))
}

// as is the same API for another token.
func (b *bench) as(token string) *bench {
	other := *b
	other.token = token
	return &other
}

// send sends a request, and holds it and its answer to the description.
func (b *bench) send(method, target, body string, headers ...string) *httptest.ResponseRecorder {
	b.t.Helper()
	r := httptest.NewRequest(method, target, strings.NewReader(body))
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	if b.token != "" {
		r.Header.Set("Authorization", "Bearer "+b.token)
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	b.handler.ServeHTTP(w, r)
	if pattern := api.Pattern(r); pattern != "" {
		conforms(b.t, b.doc, pattern, r, body, w)
	}
	if w.Code >= 400 {
		require.Equal(b.t, "application/problem+json", w.Header().Get("Content-Type"), "%s %s: %d", method, target, w.Code)
	}
	return w
}

// want sends a request, requires a status, and returns the answer.
func (b *bench) want(status int, method, target, body string, headers ...string) map[string]any {
	b.t.Helper()
	w := b.send(method, target, body, headers...)
	require.Equal(b.t, status, w.Code, "%s %s %s: %s", method, target, body, w.Body)
	var answer map[string]any
	require.NoError(b.t, json.Unmarshal(w.Body.Bytes(), &answer))
	return answer
}

// enqueue enqueues a run of mail, and returns its id.
func (b *bench) enqueue(args string) string {
	b.t.Helper()
	id, _ := b.want(201, "POST", "/runs", `{"job":"mail","args":`+args+`}`)["id"].(string)
	return id
}

// sqliteAddress is that of a database file of the test's own.
func sqliteAddress(t *testing.T) string {
	t.Helper()
	return "sqlite:" + filepath.Join(t.TempDir(), "durable.db")
}

// work runs a worker until the function that it returns is called.
func (b *bench) work(worker *durable.Worker) (stop func()) {
	b.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- worker.Run(ctx) }()
	return func() {
		cancel()
		require.NoError(b.t, <-ended)
	}
}
