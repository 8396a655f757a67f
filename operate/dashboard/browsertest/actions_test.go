package browsertest_test

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/internal/pgtest"
	"github.com/durable-worker/durable-worker/operate/dashboard/browsertest/browser"
	"github.com/durable-worker/durable-worker/operate/dashboard/browsertest/scene"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/postgres"
	"github.com/durable-worker/durable-worker/store/sqlite"
)

// databases are the stores of which the effect of each action is read. The short form
// takes PostgreSQL alone.
func databases() map[string]func(t *testing.T) scene.Database {
	all := map[string]func(t *testing.T) scene.Database{
		"postgres": func(t *testing.T) scene.Database { return onPostgres(t, pgtest.Database(t)) },
	}
	if !testing.Short() {
		all["sqlite"] = func(t *testing.T) scene.Database {
			db, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "durable.db"), sqlite.Config{})
			require.NoError(t, err)
			t.Cleanup(db.Close)
			_, err = db.Migrate(t.Context())
			require.NoError(t, err)
			return db
		}
	}
	return all
}

func onPostgres(t *testing.T, url string) *postgres.Store {
	db, err := postgres.Open(t.Context(), url, postgres.Config{})
	require.NoError(t, err)
	t.Cleanup(db.Close)
	_, err = db.Migrate(t.Context())
	require.NoError(t, err)
	return db
}

// action is something that a person does on a page, and how the audit names it.
type action struct {
	path, click                   string
	typed                         map[string]string // into the fields of the question
	kind, subject, audited, ended string            // what the audit has; ended: the state of the run after it
}

func TestEveryActionHasItsEffectInTheDatabase(t *testing.T) {
	t.Parallel()
	for name, open := range databases() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			actOn(t, open(t))
		})
	}
}

func actOn(t *testing.T, db scene.Database) {
	s, err := scene.FullOn(t.Context(), db)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	b := open(t)
	ids := runsOf(t, s)
	run := func(i int) string { return ids[i].String() }
	for _, a := range []action{
		{path: "queues", click: `a[href*="name=sync"][href*="action=pause"]`, kind: "queue", subject: "sync", audited: "pause"},
		{path: "queues", click: `a[href*="name=sync"][href*="action=resume"]`, kind: "queue", subject: "sync", audited: "resume"},
		{path: "runs/" + run(0), click: `a[href*="action=acknowledge"]`, kind: "run", subject: run(0), audited: "acknowledge", ended: "dead"},
		{path: "runs/" + run(1), click: `a[data-act="e"]`, kind: "run", subject: run(1), audited: "retry"},
		{path: "runs/" + run(2), click: `a[data-act="d"]`, typed: map[string]string{"word": "delete"}, kind: "run", subject: run(2), audited: "delete"},
		{path: "runs/" + run(3), click: `a[data-act="c"]`, kind: "run", subject: run(3), audited: "cancel", ended: "cancelled"},
		{path: "runs/" + run(0) + "/rerun", typed: map[string]string{"after": "1h"}, kind: "run", subject: run(0), audited: "rerun"},
		{path: "problems", click: `.group a[href*="action=acknowledge"]`, kind: "bulk", audited: "acknowledge"},
		{path: "schedules?name=ping", click: `a[href*="action=pause"]`, kind: "schedule", subject: "ping", audited: "pause"},
		{path: "schedules?name=ping", click: `a[href*="action=resume"]`, kind: "schedule", subject: "ping", audited: "resume"},
		{path: "schedules?name=month-end", click: `a[href*="action=run"]`, kind: "schedule", subject: "month-end", audited: "run"},
		{path: "schedules/new", typed: map[string]string{"name": "weekly", "rule": "0 4 * * mon"}, kind: "schedule", subject: "weekly", audited: "created"},
		{path: "schedules/edit?name=weekly", typed: map[string]string{"zone": "UTC"}, kind: "schedule", subject: "weekly"},
		{path: "schedules?name=weekly", click: `a[href*="action=remove"]`, typed: map[string]string{"word": "delete"}, kind: "schedule", subject: "weekly", audited: "delete"},
		{path: "limits?name=shop-api", click: `a[href*="action=set"]`, kind: "limit", subject: "shop-api", audited: "set"},
		{path: "limits?name=shop-api", click: `a[href*="action=drain"]`, kind: "limit", subject: "shop-api", audited: "drain"},
		{path: "limits?name=shop-api", click: `a[href*="action=resume"]`, kind: "limit", subject: "shop-api", audited: "resume"},
		{path: "limits?name=shop-api", click: `a[href*="action=off"]`, kind: "limit", subject: "shop-api", audited: "off"},
		{path: "locks", click: `a[href*="name=search-index"]`, typed: map[string]string{"reason": "its host is gone"}, kind: "lock", audited: ""},
		{path: "runs/new?job=mail.send", typed: map[string]string{"after": "3h"}},
	} {
		before := newest(t, s)
		act(t, b, s.URL, a)
		after := newest(t, s)
		if a.kind == "" {
			continue
		}
		require.Greater(t, after.ID, before.ID, "%+v: the audit has nothing new", a)
		require.Equal(t, a.kind, after.Kind, "%+v", a)
		require.Contains(t, after.Subject, a.subject, "%+v", a)
		if a.audited != "" {
			require.Contains(t, after.Action, a.audited, "%+v", a)
		}
		if a.ended != "" {
			id, err := store.ParseRunID(a.subject)
			require.NoError(t, err)
			record, err := db.Run(t.Context(), id)
			require.NoError(t, err)
			require.Equal(t, a.ended, record.State.String(), "%+v", a)
		}
	}
	require.Empty(t, b.Said())
	_, err = db.Run(t.Context(), ids[2])
	require.ErrorIs(t, err, store.ErrNotFound)
	locks, err := db.Locks().ListLocks(t.Context(), "", 10)
	require.NoError(t, err)
	require.Empty(t, locks)
}

// act opens a page, answers its question and waits for what it says was done.
func act(t *testing.T, b *browser.Browser, base string, a action) {
	require.NoError(t, b.Show(base, browser.View{Path: a.path, Width: 1280, Height: 900}))
	form := "main form.confirm"
	var steps []chromedp.Action
	if a.click != "" {
		form = "dialog[open] form"
		steps = append(steps, chromedp.Click(a.click))
	}
	steps = append(steps, chromedp.WaitVisible(form))
	for field, text := range a.typed {
		steps = append(steps, chromedp.SetValue(form+` [name="`+field+`"]`, text))
	}
	steps = append(steps, chromedp.Click(form+" button.main"), chromedp.WaitVisible("[data-notice]"))
	require.NoError(t, b.Run(steps...), "%+v", a)
}

// newest is the last row of the audit.
func newest(t *testing.T, s *scene.Scene) store.Change {
	list, err := s.Operator.Changes(t.Context(), store.ChangeFilter{Limit: 1})
	require.NoError(t, err)
	require.NotEmpty(t, list.Changes)
	return list.Changes[0]
}

// runsOf waits for three dead runs, and returns them and one that is not due yet.
func runsOf(t *testing.T, s *scene.Scene) (ids []store.RunID) {
	require.Eventually(t, func() bool {
		list, err := s.Operator.Runs(t.Context(), store.Filter{States: []store.State{store.Dead}, Limit: 3})
		ids = nil
		for i := range list.Runs {
			ids = append(ids, list.Runs[i].ID)
		}
		return err == nil && len(ids) == 3
	}, time.Minute, 50*time.Millisecond)
	list, err := s.Operator.Runs(t.Context(), store.Filter{States: []store.State{store.Pending}, Jobs: []string{"legacy.export"}, Limit: 1})
	require.NoError(t, err)
	return append(ids, list.Runs[0].ID)
}

// TestADatabaseThatIsAwayIsSaidAndForgotten stops the database under an open page: the page
// keeps what it shows, says that it is old, and goes on by itself when the database is back.
func TestADatabaseThatIsAwayIsSaidAndForgotten(t *testing.T) {
	t.Parallel()
	cluster := pgtest.StartPrivate(t, pgtest.Options{})
	s, err := scene.EmptyOn(onPostgres(t, cluster.URL()))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	b := open(t)
	require.NoError(t, b.Show(s.URL, browser.View{Path: "queues", Width: 1280, Height: 900}))
	state := func(word string) chromedp.Action {
		return chromedp.Poll(`document.getElementById("live").dataset.state === "`+word+`" && document.body.classList.contains("stale") === (`+"\""+word+`" === "lost")`, nil, chromedp.WithPollingTimeout(50*time.Second))
	}
	require.NoError(t, b.Run(state("live")))
	cluster.Stop(t, pgtest.Immediate)
	require.NoError(t, b.Run(state("lost"), chromedp.WaitVisible("main h1")))
	cluster.Start(t)
	require.NoError(t, b.Run(state("live")))
	_, err = s.Operator.As("grace").PauseUnusedQueue(context.Background(), "mail")
	require.NoError(t, err)
	require.NoError(t, b.Run(chromedp.WaitVisible(`a[href*="name=mail"]`)))
}
