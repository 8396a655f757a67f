package dashboard_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/internal/pgtest"
	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/lock"
	"github.com/durable-worker/durable-worker/operate"
	"github.com/durable-worker/durable-worker/operate/access"
	"github.com/durable-worker/durable-worker/operate/dashboard"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/memory"
	"github.com/durable-worker/durable-worker/store/postgres"
	"github.com/durable-worker/durable-worker/store/sqlite"
)

// engine is what a store of the tests has.
type engine interface {
	store.Store
	Locks() lock.Locks
}

// engines are the stores on which every page is tested.
var engines = map[string]func(t *testing.T) engine{
	"memory": func(*testing.T) engine { return memory.New(memory.Config{}) },
	"postgres": func(t *testing.T) engine {
		db, err := postgres.Open(context.Background(), pgtest.Database(t), postgres.Config{})
		require.NoError(t, err)
		t.Cleanup(db.Close)
		_, err = db.Migrate(context.Background())
		require.NoError(t, err)
		return db
	},
	"sqlite": func(t *testing.T) engine {
		db, err := sqlite.Open(context.Background(), filepath.Join(t.TempDir(), "durable.db"), sqlite.Config{})
		require.NoError(t, err)
		t.Cleanup(db.Close)
		_, err = db.Migrate(context.Background())
		require.NoError(t, err)
		return db
	},
}

// onEngines executes a test on each store.
func onEngines(t *testing.T, test func(t *testing.T, db engine)) {
	for name, open := range engines {
		t.Run(name, func(t *testing.T) { test(t, open(t)) })
	}
}

// mount is where the pages of the tests are.
const mount = "/ops/durable"

// site is the pages of one store.
type site struct {
	t       *testing.T
	db      engine
	op      *operate.Operator
	handler http.Handler
	log     *bytes.Buffer
	role    access.Role
	texts   access.Role // who sees them; zero: all
}

// newSite makes the pages. Who asks is an operator; see as.
func newSite(t *testing.T, db engine) *site {
	op := operate.New(db, operate.Config{Locks: db.Locks()})
	t.Cleanup(op.Close)
	return newSiteOf(t, db, op)
}

// newSiteOf makes the pages of an Operator.
func newSiteOf(t *testing.T, db engine, op *operate.Operator) *site {
	return newSiteWith(t, &site{t: t, db: db, op: op, log: &bytes.Buffer{}, role: access.Operator})
}

// newSiteWith makes the pages that a site describes.
func newSiteWith(t *testing.T, s *site) *site {
	auth := access.Func(func(*http.Request) (access.Who, error) {
		if s.role == 0 {
			return access.Who{}, access.ErrNoCredentials
		}
		return access.Who{Name: "ada", Role: s.role, Way: "test", Address: "192.0.2.1"}, nil
	})
	pages, err := dashboard.New(s.op, dashboard.Config{Auth: auth, Title: "shop", Texts: s.texts, Logger: slog.New(slog.NewTextHandler(s.log, nil))})
	require.NoError(t, err)
	mux := http.NewServeMux()
	mux.Handle(mount+"/", http.StripPrefix(mount, pages))
	s.handler = mux
	return s
}

// answer is what a page answered.
type answer struct {
	status int
	header http.Header
	body   string
	at     *url.URL
}

func (s *site) do(method, path string, form url.Values) answer {
	s.t.Helper()
	var body io.Reader
	if form != nil {
		body = strings.NewReader(form.Encode())
	}
	r := httptest.NewRequest(method, "http://ops.example"+mount+"/"+path, body)
	if form != nil {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	w := httptest.NewRecorder()
	s.handler.ServeHTTP(w, r)
	text, err := io.ReadAll(w.Result().Body)
	require.NoError(s.t, err)
	return answer{w.Code, w.Header(), string(text), r.URL}
}

// get is a page that has to be there.
func (s *site) get(path string) string {
	s.t.Helper()
	a := s.do("GET", path, nil)
	require.Equal(s.t, 200, a.status, "%s: %s", path, s.log)
	return a.body
}

// post sends a form that leads to a page, which it returns as a path below the mount.
func (s *site) post(path string, pairs ...string) string {
	s.t.Helper()
	a := s.do("POST", path, form(pairs...))
	require.Equal(s.t, http.StatusSeeOther, a.status, "%s: %.300s %s", path, a.body, s.log)
	to := a.header.Get("Location")
	require.False(s.t, strings.HasPrefix(to, "/") || strings.Contains(to, "//"), "%s leads to %s, which is not relative", path, to)
	next, err := a.at.Parse(to)
	require.NoError(s.t, err)
	below, ok := strings.CutPrefix(next.RequestURI(), mount+"/")
	require.True(s.t, ok, "%s leads to %s, out of the pages", path, next)
	return below
}

func form(pairs ...string) url.Values {
	values := url.Values{}
	for i := 0; i+1 < len(pairs); i += 2 {
		values.Add(pairs[i], pairs[i+1])
	}
	return values
}

// has fails unless a page shows a text. It prints neither.
func has(t *testing.T, body string, texts ...string) {
	t.Helper()
	for _, text := range texts {
		require.True(t, strings.Contains(body, text), "the page does not have %q", text)
	}
}

// lacks fails when a page shows a text.
func lacks(t *testing.T, body string, texts ...string) {
	t.Helper()
	for _, text := range texts {
		require.False(t, strings.Contains(body, text), "the page has %q", text)
	}
}

// lastChange is the newest row of the audit log.
func (s *site) lastChange() store.Change {
	s.t.Helper()
	list, err := s.op.Changes(s.t.Context(), store.ChangeFilter{Limit: 1})
	require.NoError(s.t, err)
	require.NotEmpty(s.t, list.Changes)
	return list.Changes[0]
}

// note is the args of the jobs of the tests.
type note struct {
	Text string `json:"text"`
}

// filled is what fill has stored.
type filled struct {
	pending, succeeded, dead, later store.RunID
}

// fill stores runs of every kind, with a text wherever a text may be stored: a worker
// executes some of them.
func fill(t *testing.T, db engine, text string) filled { return fillWith(t, db, text, text) }

// fillWith is fill with another text in args, results and checkpoints.
func fillWith(t *testing.T, db engine, text, secret string) filled {
	ctx := t.Context()
	small := durable.Retry(durable.Fixed(time.Millisecond))
	fine := durable.NewJob[note]("fine", durable.OnQueue("mail"))
	bad := durable.NewJob[note]("bad", durable.MaxAttempts(2), small)
	panics := durable.NewJob[note]("panics", durable.MaxAttempts(1))
	limited := durable.NewJob[note]("limited", durable.Limited(durable.NewLimit("api", durable.Semaphore(1)), durable.KeyOf("{text}")))
	name := text
	if len(name) > 120 {
		name = strings.ToValidUTF8(name[:120], "")
	}
	worker := durable.NewWorker(db, durable.WorkerConfig{Name: "web-1", Queues: []durable.Queue{{Name: "default"}, {Name: "mail"}}, PollInterval: 20 * time.Millisecond, Retention: 1000 * time.Hour, RetentionDead: 1000 * time.Hour})
	durable.Register(worker, fine, func(ctx context.Context, run *durable.Run[note]) error {
		run.Log().Info(text, "key", text)
		if err := run.Progress(ctx, 0.5, text); err != nil {
			return err
		}
		return run.SetResult(map[string]string{secret: secret})
	})
	durable.Register(worker, bad, func(context.Context, *durable.Run[note]) error { return errors.New(text) })
	durable.Register(worker, panics, func(context.Context, *durable.Run[note]) error { panic(text) })
	durable.Register(worker, limited, func(context.Context, *durable.Run[note]) error { return nil })
	durable.AddSchedule(worker, "nightly", fine, note{secret}, durable.Cron("0 3 * * *", "Europe/Berlin"))
	durable.AddSchedule(worker, "often", fine, note{secret}, durable.Every(time.Hour))
	working, stop := context.WithCancel(ctx)
	worked := make(chan error, 1)
	go func() { worked <- worker.Run(working) }()
	t.Cleanup(func() { stop(); require.NoError(t, <-worked) })
	require.Eventually(t, func() bool {
		limits, err := db.ListLimits(ctx, store.LimitFilter{})
		return err == nil && len(limits) == 1
	}, time.Minute, 5*time.Millisecond, "the worker declares its limit")
	client := durable.NewClient(db)
	enqueue := func(run store.NewRun) store.RunID {
		receipts, err := client.Enqueue(ctx, run)
		require.NoError(t, err)
		return receipts[0].ID
	}
	tag := durable.Tags(strings.Map(func(r rune) rune {
		if r < 0x20 || r == 0x7f {
			return -1
		}
		return r
	}, name))
	made := filled{
		succeeded: enqueue(fine.New(note{secret}, tag)), dead: enqueue(bad.New(note{secret}, tag)),
		later: enqueue(fine.New(note{secret}, durable.After(3*time.Hour))),
	}
	panicked, admitted := enqueue(panics.New(note{secret})), enqueue(limited.New(note{"key"}))
	made.pending = enqueue(durable.NewJob[note]("unserved", durable.OnQueue("legacy")).New(note{secret}))
	require.Eventually(t, func() bool {
		for id, state := range map[store.RunID]store.State{
			made.succeeded: store.Succeeded, made.dead: store.Dead, panicked: store.Dead, admitted: store.Succeeded,
		} {
			if record, err := db.Run(ctx, id); err != nil || record.State != state {
				return false
			}
		}
		records, err := db.ListSchedules(ctx)
		workers, fault := db.Workers(ctx)
		return err == nil && fault == nil && len(records) == 2 && len(workers) == 1
	}, time.Minute, 10*time.Millisecond)
	locker := lock.NewLocker(db.Locks(), lock.LockerConfig{Owner: name})
	_, err := locker.TryAcquire(ctx, "reindex", lock.Terms{Terms: lease.Terms{Duration: time.Hour}})
	require.NoError(t, err, fmt.Sprintf("%q", name))
	return made
}
