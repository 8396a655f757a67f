package metrics_test

import (
	"context"
	"errors"
	"fmt"
	"net/http/httptest"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/lock"
	"github.com/durable-worker/durable-worker/observe"
	"github.com/durable-worker/durable-worker/observe/metrics"
	"github.com/durable-worker/durable-worker/store"
)

// full is a snapshot of a program that has done everything once, and one name that needs
// to be escaped.
func full() metrics.Snapshot {
	tally := observe.NewTally()
	h := tally.Hooks()
	run := store.RunInfo{Job: "mail", Queue: "default", DueAt: time.Now()}
	_, enqueued := h.Enqueue(context.Background(), observe.EnqueueStart{Runs: []store.NewRun{{Job: "mail", Queue: "default"}}})
	enqueued(observe.EnqueueEnd{})
	_, executed := h.Execute(context.Background(), observe.ExecuteStart{Run: run})
	executed(observe.ExecuteEnd{})
	h.Execute(context.Background(), observe.ExecuteStart{Run: run})
	for _, job := range []string{"mail", "report"} {
		h.RunSettled(observe.RunVerdict{Run: store.RunInfo{Job: job, Queue: "default"}, Outcome: store.Success, Verdict: store.Applied})
	}
	h.StoreCalled(observe.StoreCall{Verb: "claim", Runs: 3, Took: time.Millisecond})
	h.StoreCalled(observe.StoreCall{Verb: "settle", Took: time.Second, Err: errors.New("gone")})
	h.Lock.Decided(lock.Decision{Name: "a \"b\"\\\n"})
	h.Lock.Degraded(lock.Degradation{Passed: time.Second})
	steps := tally.Lane("slow", "mail")
	steps.Stepped(observe.StepDone)
	tally.Lane("default", "mail").Stepped(observe.StepDone)
	steps.Stepped(observe.StepError)
	tally.StepWritten(2 * time.Millisecond)
	tally.Released(4)
	tally.SetShared(store.Shared{Now: time.Now(), Alive: 3})
	at := time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)
	oldest := at.Add(-7 * time.Second)
	lane := store.LaneInfo{Queue: "default", Job: "mail", Pending: store.Count{N: 5}, Due: store.Count{N: 3}, OldestDue: &oldest, Paused: true}
	database := &metrics.Database{Age: time.Second, At: at, Lanes: []store.LaneInfo{lane}, Unserved: []store.LaneInfo{lane}, Alive: 3, Silent: 1,
		ExpiredLeases: store.Count{N: 2}, Notices: store.Count{N: 6}, OldestNotice: &oldest, Flagged: map[string]int{"fault": 1}, Lateness: time.Minute,
		Limits: []store.LimitInfo{{Limit: store.Limit{Name: "tenant", Max: 9, State: store.LimitDraining}, InUse: store.Count{N: 8}, Waiting: store.Count{N: 4}, OldestDue: &oldest,
			Done: store.LimitTally{Admitted: 11, Refused: 6, Repaired: 1}}}}
	return metrics.Snapshot{Totals: tally.Totals(), Version: "v1.4", Database: database,
		Worker: &metrics.Worker{Ready: true, Capacity: 10, BeatLag: 3 * time.Millisecond, CPULatency: 2 * time.Second, Waiting: 5, LeaseMargin: 0.75, SetAside: map[string]int{"reclaim": 2}},
		Pools:  []store.Pool{{Name: "engine", Max: 4, Used: 1, Idle: 1, Waits: 2, Waited: time.Second}},
		Log:    &metrics.Log{Dropped: 12, Blocked: 90 * time.Second}}
}

var (
	sampleLine = regexp.MustCompile(`^([a-z_]+)(\{(?:[a-z_]+="(?:[^"\\\n]|\\["\\n])*",?)*\})? (\S+)$`)
	familyLine = regexp.MustCompile(`^# (HELP|TYPE) ([a-z_]+) (.+)$`)
)

// family is what was read of a family of metrics.
type family struct {
	kind    string
	samples map[string]float64 // by name and labels
}

// parse reads a text strictly: families are whole, each with help and type before its
// samples, and no series comes twice.
func parse(t *testing.T, text string, format metrics.Format) map[string]*family {
	t.Helper()
	families, name, helped := map[string]*family{}, "", ""
	require.True(t, strings.HasSuffix(text, "\n"))
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	if format == metrics.OpenMetrics {
		require.Equal(t, "# EOF", lines[len(lines)-1])
		lines = lines[:len(lines)-1]
	}
	for _, line := range lines {
		if found := familyLine.FindStringSubmatch(line); found != nil {
			if found[1] == "HELP" {
				helped = found[2]
				continue
			}
			name = found[2]
			require.Equal(t, helped, name, "help comes first")
			require.Nil(t, families[name], "%s comes twice", name)
			families[name] = &family{kind: found[3], samples: map[string]float64{}}
			continue
		}
		found := sampleLine.FindStringSubmatch(line)
		require.NotNil(t, found, line)
		f := families[name]
		require.NotNil(t, f, line)
		suffix, ok := strings.CutPrefix(found[1], name)
		require.True(t, ok, "%s is among the samples of %s", line, name)
		switch {
		case f.kind == "histogram":
			require.Contains(t, []string{"_bucket", "_sum", "_count"}, suffix, line)
		case f.kind == "counter" && format == metrics.OpenMetrics:
			require.Equal(t, "_total", suffix, line)
		case f.kind == "counter":
			require.True(t, strings.HasSuffix(name, "_total"), line)
			require.Empty(t, suffix, line)
		default:
			require.Equal(t, "gauge", f.kind)
			require.NotRegexp(t, "_(total|count|sum|bucket)$", name, "promtool refuses it")
			require.Empty(t, suffix, line)
		}
		value, err := strconv.ParseFloat(found[3], 64)
		require.NoError(t, err, line)
		key := found[1] + found[2]
		require.NotContains(t, f.samples, key)
		f.samples[key] = value
	}
	return families
}

func TestMetricsAreReadableInBothFormats(t *testing.T) {
	t.Parallel()
	for _, format := range []metrics.Format{metrics.Prometheus, metrics.OpenMetrics} {
		families := parse(t, string(metrics.Text(full(), format)), format)
		total := "_total"
		if format == metrics.OpenMetrics {
			total = ""
		}
		value := func(family, sample string) float64 {
			require.NotNil(t, families[family], family)
			require.Contains(t, families[family].samples, sample)
			return families[family].samples[sample]
		}
		const mail = `{job="mail",queue="default"`
		require.InDelta(t, 1, value("durable_runs_enqueued"+total, "durable_runs_enqueued_total"+mail+"}"), 0)
		require.InDelta(t, 1, value("durable_runs_settled"+total, "durable_runs_settled_total"+mail+`,outcome="success"}`), 0)
		require.InDelta(t, 0, value("durable_runs_settled"+total, "durable_runs_settled_total"+mail+`,outcome="dead"}`), 0)
		require.InDelta(t, 1, value("durable_runs_executing", "durable_runs_executing"+mail+"}"), 0)
		require.InDelta(t, 2, value("durable_run_wait_seconds", "durable_run_wait_seconds_count"+mail+"}"), 0)
		require.InDelta(t, 1, value("durable_run_duration_seconds", "durable_run_duration_seconds_bucket"+mail+`,le="0.005"}`), 0)
		require.InDelta(t, 1, value("durable_claim_runs", `durable_claim_runs_bucket{le="5.0"}`), 0)
		require.InDelta(t, 1, value("durable_store_duration_seconds", `durable_store_duration_seconds_count{verb="settle",result="error"}`), 0)
		require.InDelta(t, 0.003, value("durable_heartbeat_lag_seconds", "durable_heartbeat_lag_seconds"), 1e-9)
		require.InDelta(t, 10, value("durable_worker_capacity", "durable_worker_capacity"), 0)
		require.InDelta(t, 3, value("durable_workers_alive", "durable_workers_alive"), 0)
		for name, want := range map[string]float64{`durable_queue_due{queue="default"}`: 3, `durable_queue_later{queue="default"}`: 2,
			`durable_queue_oldest_due_seconds{queue="default"}`: 7, `durable_queue_paused{queue="default"}`: 1, `durable_lanes_unserved{job="mail",queue="default"}`: 3,
			`durable_workers_silent`: 1, `durable_leases_expired`: 2, `durable_notices`: 6, `durable_notices_oldest_seconds`: 7, `durable_survey_age_seconds`: 1, `durable_lease_margin_ratio`: 0.75,
			`durable_scheduling_latency_seconds`: 2, `durable_runs_not_begun`: 5,
			`durable_limit_in_use{limit="tenant"}`: 8, `durable_limit_max{limit="tenant"}`: 9, `durable_limit_waiting{limit="tenant"}`: 4,
			`durable_limit_oldest_due_seconds{limit="tenant"}`: 7, `durable_limit_draining{limit="tenant"}`: 1,
			`durable_schedules_flagged{reason="fault"}`: 1, `durable_schedule_lateness_seconds`: 60} {
			family, _, _ := strings.Cut(name, "{")
			require.InDelta(t, want, value(family, name), 0, name)
		}
		for name, want := range map[string]float64{"admitted": 11, "refused": 6, "repaired": 1} {
			require.InDelta(t, want, value("durable_limit_"+name+total, "durable_limit_"+name+`_total{limit="tenant"}`), 0, name)
		}
		for name, want := range map[string]float64{"done": 2, "tried": 0, "failed": 0, "error": 1} {
			require.InDelta(t, want, value("durable_steps"+total, `durable_steps_total{job="mail",result="`+name+`"}`), 0, name)
		}
		require.Len(t, families["durable_steps"+total].samples, 4, "a job without steps has no series")
		require.InDelta(t, 1, value("durable_step_write_seconds", `durable_step_write_seconds_bucket{le="0.0025"}`), 0)
		require.InDelta(t, 4, value("durable_released"+total, "durable_released_total"), 0)
		require.InDelta(t, 12, value("durable_log_lines_dropped"+total, "durable_log_lines_dropped_total"), 0)
		require.InDelta(t, 90, value("durable_log_blocked_seconds", "durable_log_blocked_seconds"), 0)
		require.InDelta(t, 2, value("durable_set_aside", `durable_set_aside{doing="reclaim"}`), 0)
		require.InDelta(t, 1, value("durable_pool_connections", `durable_pool_connections{pool="engine",state="used"}`), 0)
		require.InDelta(t, 1, value("durable_lock_grants"+total, `durable_lock_grants_total{lock="a \"b\"\\\n",result="granted"}`), 0)
		require.InDelta(t, 1, value("durable_lock_degraded_time_seconds"+total, "durable_lock_degraded_time_seconds_total"), 0)
		histogramsAddUp(t, families)
	}
}

// histogramsAddUp requires that the classes rise, and end with all that was counted.
func histogramsAddUp(t *testing.T, families map[string]*family) {
	t.Helper()
	counted := 0
	for name, f := range families {
		for key, all := range f.samples {
			labels, ok := strings.CutPrefix(key, name+"_count")
			if f.kind != "histogram" || !ok {
				continue
			}
			counted++
			with := strings.TrimSuffix(strings.TrimPrefix(labels, "{"), "}")
			if with != "" {
				with += ","
			}
			require.InDelta(t, all, f.samples[fmt.Sprintf(`%s_bucket{%sle="+Inf"}`, name, with)], 0, key)
		}
	}
	require.Greater(t, counted, 5)
}

func TestAnEmptyProgramHasMetrics(t *testing.T) {
	t.Parallel()
	for _, format := range []metrics.Format{metrics.Prometheus, metrics.OpenMetrics} {
		families := parse(t, string(metrics.Text(metrics.Snapshot{}, format)), format)
		require.Contains(t, families, "durable_build_info")
		require.NotContains(t, families, "durable_worker_capacity")
	}
}

func TestAScrapeGetsTheFormatThatItAccepts(t *testing.T) {
	t.Parallel()
	for accept, want := range map[string]metrics.Format{
		"": metrics.Prometheus, "text/plain;version=0.0.4": metrics.Prometheus,
		"application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5":                                                                  metrics.OpenMetrics,
		"application/openmetrics-text;version=1.0.0;q=0.6,application/openmetrics-text;version=0.0.1;q=0.5,text/plain;version=0.0.4;q=0.3,*/*;q=0.2": metrics.OpenMetrics,
		"Application/OpenMetrics-Text; Q=1, */*":                                         metrics.OpenMetrics,
		"application/openmetrics-text;q=0":                                               metrics.Prometheus,
		"application/openmetrics-text;q=0.000, text/plain;q=0.1":                         metrics.Prometheus,
		"application/openmetrics-text;version=1.0.0;q=0.2,text/plain;version=0.0.4;q=.9": metrics.Prometheus,
		"application/openmetrics-text;q=NaN":                                             metrics.Prometheus,
		"text/plain, x/application/openmetrics-text":                                     metrics.Prometheus,
	} {
		r := httptest.NewRequestWithContext(t.Context(), "GET", "/metrics", nil)
		r.Header.Set("Accept", accept)
		w := httptest.NewRecorder()
		metrics.Serve(w, r, full())
		require.Equal(t, want.ContentType(), w.Header().Get("Content-Type"))
		parse(t, w.Body.String(), want)
	}
}
