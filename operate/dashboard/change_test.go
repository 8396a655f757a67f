package dashboard_test

import (
	"context"
	"encoding/json"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/operate"
	"github.com/durable-worker/durable-worker/operate/access"
	"github.com/durable-worker/durable-worker/store"
)

func (s *site) state(id store.RunID) store.State {
	s.t.Helper()
	record, err := s.op.Run(s.t.Context(), id)
	require.NoError(s.t, err)
	return record.State
}

// audited requires that the newest row of the audit log is this change, by who asked.
func (s *site) audited(kind, subject, action string) store.Change {
	s.t.Helper()
	change := s.lastChange()
	require.Equal(s.t, []string{kind, subject, action}, []string{change.Kind, change.Subject, change.Action})
	require.True(s.t, strings.HasPrefix(change.Actor, "ada"), change.Actor)
	return change
}

func TestRunsAreChanged(t *testing.T) {
	onEngines(t, func(t *testing.T, db engine) {
		made := fill(t, db, "x")
		s := newSite(t, db)
		later, dead := made.later.String(), made.dead.String()

		has(t, s.get("runs/change?action=cancel&id="+later), "Cancel run", "Reason, for the audit", "Keep")
		to := s.post("runs/change", "action", "cancel", "id", later, "reason", "sent by hand", "back", "runs/"+later)
		require.Equal(t, "runs/"+later+"?changed=1&did=cancel", to)
		has(t, s.get(to), "Cancelled", "1 run")
		require.Equal(t, store.Cancelled, s.state(made.later))
		require.Contains(t, string(s.audited("run", later, "cancel").Detail), "sent by hand")

		to = s.post("runs/change", "action", "retry", "id", dead, "id", later, "id", made.succeeded.String(), "back", "runs?state=dead")
		require.Equal(t, "runs?state=dead&changed=2&conflict=1&did=retry", to)
		has(t, s.get(to), "Retried", "2 runs", "1 run was in a state that does not allow it")

		a := s.do("POST", "runs/change", form("action", "delete", "id", made.succeeded.String()))
		require.Equal(t, 400, a.status, "the word is missing")
		has(t, a.body, "Type delete to confirm")
		require.Equal(t, store.Succeeded, s.state(made.succeeded))
		to = s.post("runs/change", "action", "delete", "id", made.succeeded.String(), "word", "delete", "back", "runs/"+made.succeeded.String())
		require.Equal(t, "runs?changed=1&did=delete", to, "the run's page is gone")
		_, err := s.op.Run(t.Context(), made.succeeded)
		require.ErrorIs(t, err, store.ErrNotFound)
		s.audited("run", made.succeeded.String(), "delete")

		require.Equal(t, 404, s.do("POST", "runs/change", form("action", "retry", "id", made.succeeded.String())).status)
		require.Equal(t, 400, s.do("POST", "runs/change", form("action", "explode", "id", dead)).status)
		require.Equal(t, 400, s.do("POST", "runs/change", form("action", "retry")).status, "no run is chosen")
	})
}

func TestBackLeadsNowhereElse(t *testing.T) {
	db := engines["memory"](t)
	made := fill(t, db, "x")
	s := newSite(t, db)
	for _, evil := range []string{"//evil.example", "https://evil.example/", "/etc", "../../x", "javascript:alert(1)", `\\evil`, "runs\r\nSet-Cookie: a=b"} {
		has(t, s.get("runs/change?action=cancel&id="+made.later.String()+"&back="+url.QueryEscape(evil)), `href="../runs" data-keep`)
		to := s.post("runs/change", "action", "cancel", "id", made.later.String(), "back", evil)
		require.True(t, strings.HasPrefix(to, "runs?"), "%q leads to %q", evil, to)
	}
}

func TestAllThatMatchAreChanged(t *testing.T) {
	onEngines(t, func(t *testing.T, db engine) {
		made := fill(t, db, "x")
		s := newSite(t, db)
		page := s.get("runs/change?action=cancel&all=true&job=fine&job=unserved")
		has(t, page, "All runs that match", "<strong>pending</strong>", "created before", "Type <strong>cancel</strong>")
		until := regexp.MustCompile(`name="until" value="([^"]*)"`).FindStringSubmatch(page)
		require.Len(t, until, 2, "it is fixed to the runs that were there")
		order := []string{"action", "cancel", "all", "true", "job", "fine", "job", "unserved", "until", until[1], "reason", "wrong customer"}
		require.Equal(t, 400, s.do("POST", "runs/change", form(order...)).status)
		to := s.post("runs/change", append(order, "word", "cancel")...)
		require.Equal(t, "bulk/1", to)
		require.Eventually(t, func() bool {
			status, err := s.op.Bulk(1)
			return err == nil && status.State == operate.BulkDone
		}, 10*time.Second, 5*time.Millisecond)
		has(t, s.get(to), "done", "2 runs changed", "wrong customer")
		has(t, s.get("bulk"), `href="./bulk/1"`)
		require.Equal(t, store.Cancelled, s.state(made.later))
		require.Equal(t, store.Cancelled, s.state(made.pending))
		require.Equal(t, store.Dead, s.state(made.dead))
		require.Equal(t, int64(2), s.lastChange().Runs)
		require.Equal(t, "bulk", s.lastChange().Kind)
	})
}

func TestRunsAreRunAgainWithOtherArgs(t *testing.T) {
	onEngines(t, func(t *testing.T, db engine) {
		made := fill(t, db, "x")
		s := newSite(t, db)
		path := "runs/" + made.dead.String() + "/rerun"
		has(t, s.get(path), "Rerun this run of bad", "&#34;text&#34;: &#34;x&#34;")
		for args, fault := range map[string]string{`{"text":`: "not valid JSON", `{}`: "delay"} {
			after := ""
			if args == "{}" {
				after = "soon"
			}
			a := s.do("POST", path, form("args", args, "after", after))
			require.Equal(t, 400, a.status)
			has(t, a.body, "fault", fault)
		}
		to := s.post(path, "args", `{"text": "other"}`, "after", "1h")
		id, err := store.ParseRunID(strings.TrimSuffix(strings.TrimPrefix(to, "runs/"), "?did=rerun"))
		require.NoError(t, err)
		record, err := s.op.Run(t.Context(), id)
		require.NoError(t, err)
		require.JSONEq(t, `{"text":"other"}`, string(record.Args))
		require.Equal(t, "bad", record.Job)
		s.audited("run", made.dead.String(), "rerun")
		has(t, s.get(to), "this is the new run")
	})
}

func TestRunsAreEnqueuedByAForm(t *testing.T) {
	onEngines(t, func(t *testing.T, db engine) {
		fill(t, db, "x")
		s := newSite(t, db)
		has(t, s.get("runs/new?job=fine"), "Enqueue a run of fine", "&#34;text&#34;")
		to := s.post("runs/new", "job", "fine", "args", `{"text": "by hand"}`, "tags", "a, b", "priority", "2", "after", "2h")
		id, err := store.ParseRunID(strings.TrimSuffix(strings.TrimPrefix(to, "runs/"), "?did=enqueue"))
		require.NoError(t, err)
		record, err := s.op.Run(t.Context(), id)
		require.NoError(t, err)
		require.Equal(t, []string{"a", "b"}, record.Tags)
		require.Equal(t, 2, record.Priority)
		require.Equal(t, json.RawMessage(`{"text":"by hand"}`), record.Args)
		a := s.do("POST", "runs/new", form("job", "fine", "args", "{}", "priority", "99"))
		require.Equal(t, 400, a.status)
		has(t, a.body, "priority 99")
	})
}

func TestQueuesArePausedAndResumed(t *testing.T) {
	onEngines(t, func(t *testing.T, db engine) {
		fill(t, db, "x")
		s := newSite(t, db)
		has(t, s.get("queues/change?name=mail&action=pause"), "Pause queue mail?", "Keep working")
		to := s.post("queues/change", "name", "mail", "action", "pause")
		has(t, s.get(to), "Paused", "Resume…")
		s.audited("queue", "mail", "pause")
		s.post("queues/change", "name", "mail", "action", "resume")
		s.audited("queue", "mail", "resume")
		a := s.do("POST", "queues/change", form("name", "mial", "action", "pause"))
		require.Equal(t, 400, a.status)
		has(t, a.body, "not found")
	})
}

func TestSchedulesAreChanged(t *testing.T) {
	onEngines(t, func(t *testing.T, db engine) {
		fill(t, db, "x")
		s := newSite(t, db)
		has(t, s.get("schedules?name=nightly"), "0 3 * * * Europe/Berlin", "in ", "It has not fired yet")
		to := s.post("schedules/change", "name", "nightly", "action", "pause", "back", "schedules?name=nightly")
		has(t, s.get(to), "Paused", "paused by ada", "Resume…")
		s.audited("schedule", "nightly", "pause")
		s.post("schedules/change", "name", "nightly", "action", "resume")
		s.audited("schedule", "nightly", "resume")
		to = s.post("schedules/change", "name", "nightly", "action", "run")
		require.Regexp(t, `^runs/[0-9a-f-]{36}\?did=run$`, to)
		has(t, s.get(to), "by schedule nightly")
		require.Equal(t, 400, s.do("POST", "schedules/change", form("name", "nightly", "action", "remove")).status)
		require.Equal(t, "schedules?did=remove", s.post("schedules/change", "name", "nightly", "action", "remove", "word", "delete"))
		s.audited("schedule", "nightly", "delete")
	})
}

func TestLimitsAreChanged(t *testing.T) {
	onEngines(t, func(t *testing.T, db engine) {
		fill(t, db, "x")
		s := newSite(t, db)
		limit := func() operate.LimitView {
			list, err := s.op.Limits(t.Context(), store.LimitFilter{Names: []string{"api"}}, operate.Part{})
			require.NoError(t, err)
			return list.Limits[0]
		}
		has(t, s.get("limits?name=api"), "1 run concurrently", "semaphore")
		s.post("limits/change", "name", "api", "action", "set", "max", "7")
		require.Equal(t, 7, limit().Max)
		s.audited("limit", "api", "set")
		a := s.do("POST", "limits/change", form("name", "api", "action", "set", "max", "many"))
		require.Equal(t, 400, a.status)
		has(t, a.body, "want a whole number")
		for action, state := range map[string]store.LimitState{"drain": store.LimitDraining, "off": store.LimitOff} {
			s.post("limits/change", "name", "api", "action", action)
			require.Equal(t, state, limit().State)
			s.audited("limit", "api", action)
			s.post("limits/change", "name", "api", "action", "resume")
			require.Equal(t, store.LimitActive, limit().State)
		}
	})
}

func TestLocksAreReleased(t *testing.T) {
	onEngines(t, func(t *testing.T, db engine) {
		fill(t, db, "x")
		s := newSite(t, db)
		has(t, s.get("locks"), "reindex", "held", "Release…")
		require.Equal(t, 400, s.do("POST", "locks/release", form("name", "reindex", "slot", "0")).status, "without a reason")
		to := s.post("locks/release", "name", "reindex", "slot", "0", "reason", "its host is gone")
		has(t, s.get(to), "No lock is held", "its host is gone")
	})
}

func TestViewersChangeNothingAndSeeNoArgs(t *testing.T) {
	onEngines(t, func(t *testing.T, db engine) {
		made := fill(t, db, "canary-7f3")
		s := newSite(t, db)
		s.role = access.Viewer
		before, err := s.op.Changes(t.Context(), store.ChangeFilter{})
		require.NoError(t, err)
		for path, fields := range map[string][]string{
			"runs/change":                           {"action", "retry", "id", made.dead.String()},
			"runs/" + made.dead.String() + "/rerun": {"args", "{}"},
			"runs/new":                              {"job", "fine", "args", "{}"},
			"queues/change":                         {"name", "mail", "action", "pause"},
			"schedules/change":                      {"name", "nightly", "action", "pause"},
			"limits/change":                         {"name", "api", "action", "drain"},
			"locks/release":                         {"name", "reindex", "slot", "0", "reason", "x"},
			"bulk/1":                                {},
		} {
			a := s.do("POST", path, form(fields...))
			require.Equal(t, 403, a.status, path)
			has(t, a.body, "operator")
		}
		after, err := s.op.Changes(t.Context(), store.ChangeFilter{})
		require.NoError(t, err)
		require.Equal(t, before, after)
		require.Equal(t, store.Dead, s.state(made.dead))
		for _, path := range []string{"runs/" + made.later.String(), "schedules?name=nightly", "runs/" + made.later.String() + "/rerun", "runs/new?job=fine"} {
			lacks(t, s.get(path), "canary-7f3")
		}
		has(t, s.get("runs/"+made.later.String()), "21 bytes; operators see them")
		lacks(t, s.get("runs"), "Retry…")
		lacks(t, s.get("queues"), "Pause…")
	})
}

func TestWhoHasNotLoggedInSeesNothing(t *testing.T) {
	db := engines["memory"](t)
	made := fill(t, db, "secret-9")
	s := newSite(t, db)
	s.role = 0
	for _, path := range []string{"", "runs", "runs/" + made.dead.String(), "live", "nowhere"} {
		a := s.do("GET", path, nil)
		require.Equal(t, 401, a.status, path)
		lacks(t, a.body, "secret-9", "bad", `id="nav"`)
	}
}

func TestStreamsHint(t *testing.T) {
	s := newSite(t, engines["memory"](t))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	stream := openStream(ctx, t, s)
	require.True(t, stream.Scan())
	require.Equal(t, "retry: 5000", stream.Text())
	for stream.Scan() {
		if stream.Text() == "event: changed" {
			return
		}
	}
	require.Fail(t, "the stream ended without a hint")
}

// groupOfPage finds the groups on the page of problems.
var groupOfPage = regexp.MustCompile(`id="g-([0-9a-f]+)"`)

func TestProblemsAreGroupedAndChanged(t *testing.T) {
	onEngines(t, func(t *testing.T, db engine) {
		made := fill(t, db, "order 17 was refused")
		s := newSite(t, db)
		page := s.get("problems")
		has(t, page, "order # was refused", "bad", "panics", "2 dead runs in 2 groups")
		groups := groupOfPage.FindAllStringSubmatch(page, -1)
		require.Len(t, groups, 2)
		group := ""
		for _, one := range groups {
			if strings.Contains(s.get("problems/change?action=retry&group="+one[1]), "Retry 1 dead run of bad?") {
				group = one[1]
			}
		}
		require.NotEmpty(t, group)
		to := s.post("problems/change", "group", group, "action", "acknowledge", "reason", "known")
		require.Equal(t, "problems?changed=1&did=acknowledge", to)
		lacks(t, s.get(to), `id="g-`+group)
		has(t, s.get("problems?acknowledged=true"), `id="g-`+group, "acknowledged by ada")
		require.Equal(t, store.Dead, s.state(made.dead))
		require.Equal(t, "acknowledge", s.lastChange().Action)
		require.Equal(t, 404, s.do("POST", "problems/change", form("group", group, "action", "retry")).status)
		require.Equal(t, 400, s.do("GET", "problems/change?action=explode&group="+groups[0][1], nil).status+s.do("GET", "problems/change?action=explode&group="+groups[1][1], nil).status-404)
	})
}

func TestRunsSayWhyTheyWait(t *testing.T) {
	onEngines(t, func(t *testing.T, db engine) {
		made := fill(t, db, "x")
		s := newSite(t, db)
		has(t, s.get("runs/"+made.pending.String()), "no_worker", "no worker serves job unserved on queue legacy")
		has(t, s.get("runs/"+made.later.String()), "not_due", "starts")
		for _, page := range []string{"jobs", "queues"} { // of several, the one that no worker serves
			require.Equal(t, 1, strings.Count(s.get(page), "none serves it"), page)
		}
		a := s.do("GET", "runs/0190c5a0-7d6c-7b0e-9f6e-3a1f4b2c5d6e", nil)
		require.Equal(t, 404, a.status)
		has(t, a.body, "This run is not there", "Not there: ")
	})
}

func TestSchedulesAreEditedWithAPreview(t *testing.T) {
	onEngines(t, func(t *testing.T, db engine) {
		fill(t, db, "x")
		s := newSite(t, db)
		page := s.get("schedules/edit?name=nightly")
		has(t, page, `value="0 3 * * *"`, `value="Europe/Berlin"`, "Preview")
		generation := regexp.MustCompile(`name="generation" value="(\d+)"`).FindStringSubmatch(page)[1]
		order := []string{"name", "nightly", "generation", generation, "rule", "30 4 * * mon", "zone", "UTC", "catch_up", "latest", "overlap", "wait", "args", `{"text": "y"}`}
		order[len(order)-1] = "{\r\n  \"text\": \"y\"\r\n}" // as browsers send lines
		a := s.do("POST", "schedules/edit", form(append(order, "second", "yes")...))
		require.Equal(t, 200, a.status)
		lacks(t, a.body, `\u000d`)
		has(t, a.body, "The next occurrences would be", "04:30:00.000 UTC")
		record, err := s.op.Schedule(t.Context(), "nightly")
		require.NoError(t, err)
		require.Equal(t, "0 3 * * *", record.Rule.Cron, "a preview changes nothing")
		s.post("schedules/edit", order...)
		record, err = s.op.Schedule(t.Context(), "nightly")
		require.NoError(t, err)
		require.Equal(t, store.Cron("30 4 * * mon", "UTC"), record.Rule)
		require.Equal(t, store.OverlapWait, record.Plan.Overlap)
		require.True(t, record.Edited)
		require.Equal(t, "schedule", s.lastChange().Kind)
		a = s.do("POST", "schedules/edit", form(order...))
		require.Equal(t, 400, a.status, "another generation is stored by now")
		has(t, a.body, "conflict")
		for rule, fault := range map[string]string{"61 * * * *": "61", "every soon": "want every and a duration"} {
			order[5] = rule
			a := s.do("POST", "schedules/edit", form(append(order, "second", "yes")...))
			require.Equal(t, 400, a.status, rule)
			has(t, a.body, fault)
		}
	})
}

func TestJobsHavePages(t *testing.T) {
	onEngines(t, func(t *testing.T, db engine) {
		fill(t, db, "order 5 was refused")
		s := newSite(t, db)
		has(t, s.get("jobs?name=bad&range=24h"), "order # was refused", "Outcomes", "Declared", "web-1")
		require.Equal(t, 404, s.do("GET", "jobs?name=none", nil).status)
		require.Equal(t, 400, s.do("GET", "jobs?name=bad&range=9y", nil).status)
	})
}
