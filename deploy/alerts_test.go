package deploy_test

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/observe/metrics"
)

var update = flag.Bool("update", false, "write prometheus/durable.rules.test.yaml")

// alarm is what makes an alert fire: series for promtool, and the fault that makes a
// program write them.
type alarm struct {
	alert   string
	fault   func(t *testing.T, s *site)
	series  []string // the first is the one that the fault moves; with values as promtool reads them
	value   func(v float64) bool
	quiet   string // the last minute in which it does not fire
	fires   string // and one in which it does
	labels  string // of the alert, besides its severity
	summary string
}

func above(least float64) func(float64) bool { return func(v float64) bool { return v > least } }

const lane = `job="mail",queue="default"`

// alarms are all alerts.
func alarms() []alarm {
	return []alarm{
		{"NothingServes", nothingServes, []string{`durable_lanes_unserved{` + lane + `} 3x20`}, above(0), "4m", "6m", lane,
			"3 due runs of job mail on queue default, and no living worker serves them"},
		{"NoWorker", workersUnseen, []string{`durable_workers_alive 0x20`, `durable_worker_capacity 100x20`}, func(v float64) bool { return v == 0 }, "1m", "3m", "",
			"No worker is alive"},
		{"NoWorker", workersUnseen, []string{`durable_survey_age_seconds 1x20`}, nil, "1m", "3m", "", "No worker is alive"},
		{"Stuck", stuck, []string{`durable_handlers_stuck 1x20`}, above(0), "4m", "6m", `instance="a"`, "1 handlers on a ignored the end of their context"},
		{"BeatsLate", beatsLate, []string{`durable_lease_margin_ratio 0.1x20`}, func(v float64) bool { return v < 0.2 }, "0m", "2m", `instance="a"`,
			"Leases on a are about to expire: heartbeats come late"},
		{"Store", storeFails, []string{`durable_store_duration_seconds_count{verb="heads",result="error"} 0+60x20`}, above(0), "5m", "7m", `verb="heads"`,
			"Calls of the database fail: heads"},
		{"Outages", outages, []string{`durable_store_outage_seconds_total 0x5 0+30x20`}, above(60), "5m", "10m", `instance="a"`,
			"The database often does not answer the worker on a"},
		{"LeasesExpired", leasesExpired, []string{`durable_leases_expired 2x20`}, above(0), "4m", "6m", "", "2 leases have expired, and no worker takes their runs back"},
		{"NoticesOld", inputsUnseen, []string{`durable_notices_oldest_seconds 90x20`}, above(60), "0m", "2m", "", "Inputs were sent, and no worker has released their runs for 1m 30s"},
		{"OldestDue", nothingServes, []string{`durable_queue_oldest_due_seconds{queue="default"} 400x30`, `durable_queue_paused{queue="default"} 0x30`}, above(300),
			"9m", "11m", `queue="default"`, "The oldest run on queue default has been due for 6m 40s"},
		{"DeadRuns", runsDie, []string{`durable_runs_settled_total{` + lane + `,outcome="dead"} 0x5 1x20`}, above(0), "4m", "8m", lane, "Runs of job mail died"},
		{"Failures", runsFail, []string{`durable_runs_settled_total{` + lane + `,outcome="failure"} 0+3x40`, `durable_runs_settled_total{` + lane + `,outcome="success"} 0+3x40`},
			above(0), "15m", "25m", `job="mail"`, "More than a fifth of the attempts of job mail fail"},
		{"Reclaimed", reclaimed, []string{`durable_runs_reclaimed_total{` + lane + `} 0x5 1x20`}, above(0), "4m", "8m", "", "Runs were reclaimed from workers that lost them"},
		{"LateWrites", leaseLost, []string{`durable_leases_lost_total 0x5 1x20`, `durable_writes_refused_total{` + lane + `} 0x25`}, above(0), "4m", "8m", "",
			"Leases were lost while handlers were executing"},
		{"StoreSlow", storeSlow, []string{`durable_store_duration_seconds_bucket{verb="heads",result="ok",le="+Inf"} 0+60x40`,
			`durable_store_duration_seconds_bucket{verb="heads",result="ok",le="0.5"} 0x40`, `durable_store_duration_seconds_bucket{verb="heads",result="ok",le="1.0"} 0+60x40`},
			above(0), "10m", "13m", `verb="heads"`, "Calls of the database are slow: heads"},
		{"Saturated", saturated, []string{`durable_queue_due{queue="default"} 2000x60`, `durable_runs_executing{` + lane + `} 100x60`, `durable_worker_capacity 100x60`},
			above(1000), "29m", "31m", "", "All workers are full, and many runs wait"},
		{"Schedules", scheduleFaulty, []string{`durable_schedules_flagged{reason="fault"} 1x20`}, above(0), "4m", "6m", `reason="fault"`,
			"A schedule cannot be evaluated, or is late"},
		{"Schedules", scheduleLate, []string{`durable_schedule_lateness_seconds 120x20`}, above(60), "4m", "6m", "", "A schedule cannot be evaluated, or is late"},
		{"LimitFull", limitFull, []string{`durable_limit_oldest_due_seconds{limit="tenant"} 700x20`}, above(600), "9m", "11m", `limit="tenant"`,
			"Runs have waited for limit tenant for 11m 40s"},
		{"LockDegraded", locksAway, []string{`durable_lock_degraded_time_seconds_total 0x5 3x20`}, above(0), "4m", "6m", `instance="a"`,
			"The store of the locks could not be asked on a"},
		{"LockStore", lockStoreAway, []string{`durable_lock_store_healthy 1x5 0x20`}, func(v float64) bool { return v == 0 }, "7m", "9m", `instance="a"`,
			"The store of the locks grants no lock to the worker on a"},
		{"PausedWithWork", pausedWithWork, []string{`durable_queue_paused{queue="default"} 1x80`, `durable_queue_due{queue="default"} 5x80`}, above(0), "59m", "61m",
			`queue="default"`, "Queue default is paused, and runs are due on it"},
		{"EventsDropped", eventsDropped, []string{`durable_events_dropped_total 0x5 7x20`}, above(0), "4m", "8m", `instance="a"`,
			"Events of a are dropped: the webhook does not take them"},
		{"LogLost", logUnread, []string{`durable_log_blocked_seconds 0x5 90x20`}, above(60), "4m", "6m", `instance="a"`,
			"The log of the worker on a is not read, or cannot be written"},
		{"LogLost", logBroken, []string{`durable_log_lines_dropped_total 0x5 7x20`}, above(0), "4m", "8m", `instance="a"`,
			"The log of the worker on a is not read, or cannot be written"},
		{"SampleOld", databaseAway, []string{`durable_survey_age_seconds 200x20`}, above(180), "4m", "6m", "", "What is known of the database is old: no scrape gets an answer"},
	}
}

// rules are the alerts of the file, by name.
func rules(t *testing.T) map[string]map[string]any {
	t.Helper()
	byName := map[string]map[string]any{}
	for _, one := range at(t, documents(t, "prometheus/durable.rules.yaml")[0], "groups", 0, "rules").([]any) {
		rule := one.(map[string]any)
		byName[strings.TrimPrefix(rule["alert"].(string), "Durable")] = rule
	}
	return byName
}

// splitSeries divides a series of promtool's into name, labels and values.
func splitSeries(t *testing.T, text string) (name, labels, values string) {
	t.Helper()
	found := regexp.MustCompile(`^(\w+)(?:\{(.*)\})? (.*)$`).FindStringSubmatch(text)
	require.NotNil(t, found, text)
	return found[1], found[2], found[3]
}

// TestPromtoolsTestsAreThoseOfTheAlarms holds the file that `make alerts` gives to promtool
// to the table above. After a change: go test ./deploy -run Promtool -update
func TestPromtoolsTestsAreThoseOfTheAlarms(t *testing.T) {
	t.Parallel()
	byName := rules(t)
	var b bytes.Buffer
	b.WriteString("# Written by `go test ./deploy -run Promtool -update`; `make alerts` runs it.\nrule_files: [durable.rules.yaml]\nevaluation_interval: 1m\ntests:\n")
	for _, a := range alarms() {
		rule := byName[a.alert]
		require.NotNil(t, rule, a.alert)
		fmt.Fprintf(&b, "  - name: %s\n    interval: 1m\n    input_series:\n", a.alert)
		for _, series := range a.series {
			name, labels, values := splitSeries(t, series)
			all := strings.TrimPrefix(labels+`,instance="a"`, ",")
			fmt.Fprintf(&b, "      - { series: '%s{%s}', values: '%s' }\n", name, all, values)
		}
		fmt.Fprintf(&b, "    alert_rule_test:\n      - { eval_time: %s, alertname: Durable%s, exp_alerts: [] }\n", a.quiet, a.alert)
		fmt.Fprintf(&b, "      - eval_time: %s\n        alertname: Durable%s\n        exp_alerts:\n          - exp_labels: { severity: %s", a.fires, a.alert, at(t, rule, "labels", "severity"))
		for _, pair := range regexp.MustCompile(`(\w+)="([^"]*)"`).FindAllStringSubmatch(a.labels, -1) {
			fmt.Fprintf(&b, ", %s: %s", pair[1], pair[2])
		}
		fmt.Fprintf(&b, " }\n            exp_annotations:\n              summary: %q\n              runbook_url: %s\n", a.summary, at(t, rule, "annotations", "runbook_url"))
	}
	const file = "prometheus/durable.rules.test.yaml"
	if *update {
		require.NoError(t, os.WriteFile(file, b.Bytes(), 0o600))
	}
	have, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, b.String(), string(have), "go test ./deploy -run Promtool -update")
}

// samples reads what the writer wrote: values by name and labels.
func samples(t *testing.T, text []byte) map[string]float64 {
	t.Helper()
	all := map[string]float64{}
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		line = strings.TrimSpace(line)
		end := strings.LastIndexByte(line, ' ')
		v, err := strconv.ParseFloat(line[end+1:], 64)
		require.NoError(t, err, line)
		all[line[:end]] = v
	}
	return all
}

// TestEveryAlertFiresByItsFault provokes the fault of each alert, and requires that the
// program then writes the series with which promtool has the alert fire, with their labels.
func TestEveryAlertFiresByItsFault(t *testing.T) {
	t.Parallel()
	left := rules(t)
	for _, a := range alarms() {
		delete(left, a.alert)
		t.Run(a.alert, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newSite(t)
				defer s.close()
				a.fault(t, s)
				written := samples(t, metrics.Text(s.snapshot(), metrics.Prometheus))
				for i, series := range a.series {
					name, labels, _ := splitSeries(t, series)
					key := name
					if labels != "" {
						key += "{" + labels + "}"
					}
					require.Contains(t, written, key)
					if i == 0 && a.value != nil {
						require.True(t, a.value(written[key]), "%s is %v", key, written[key])
					}
				}
				needsOnly(t, rules(t)[a.alert]["expr"].(string), written)
			})
		})
	}
	require.Empty(t, left, "alerts without a fault")
}

// needsOnly requires that an expression groups by labels that its metrics have: those that
// are written, and the instance, which Prometheus adds.
func needsOnly(t *testing.T, expression string, written map[string]float64) {
	t.Helper()
	for _, by := range regexp.MustCompile(`(?:by|on) ?\(([^)]*)\) ?\(?(?:max by \([^)]*\) ?\()?(?:rate|increase)?\(?(\w+)`).FindAllStringSubmatch(expression, -1) {
		for label := range strings.SplitSeq(by[1], ",") {
			if label = strings.TrimSpace(label); label == "instance" || !strings.HasPrefix(by[2], "durable_") {
				continue
			}
			for key := range written {
				if name, labels, _ := strings.Cut(key, "{"); name == by[2] {
					require.Contains(t, labels, label+`="`, "%s has no label %s", name, label)
				}
			}
		}
	}
}

// TestACleanSiteFiresNothing: with a worker that works, no alert's series is beyond bounds.
func TestACleanSiteFiresNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t)
		defer s.close()
		s.work(nil)
		s.enqueue(20)
		s.pass(10 * time.Minute)
		written := samples(t, metrics.Text(s.snapshot(), metrics.Prometheus))
		require.InDelta(t, 20, written[`durable_runs_settled_total{`+lane+`,outcome="success"}`], 0)
		for _, a := range alarms() {
			name, labels, _ := splitSeries(t, a.series[0])
			if value, there := written[name+"{"+labels+"}"]; labels != "" && there && a.value != nil && a.alert != "StoreSlow" {
				require.False(t, a.value(value), "%s: %v", a.series[0], value)
			}
		}
	})
}
