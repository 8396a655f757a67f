package storetest

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/durable-worker/durable-worker/store"
)

func presenceTests() map[string]func(*testing.T, *fixture) {
	return map[string]func(*testing.T, *fixture){
		"a worker is listed as it reports, until it stops":              reportAndStop,
		"a worker that only declares itself is not listed":              declaredOnly,
		"a worker that reports no more is silent after three intervals": fallSilent,
		"a lease that has not expired keeps a worker from being silent": leaseSpeaks,
		"a report that is repeated adds nothing":                        reportAgain,
		"a report is refused that cannot be stored":                     reportRefused,
		"what workers did is added by minute and quarter of an hour":    seriesAdd,
		"steps of a series are deleted when their time is over":         seriesEnd,
		"a survey counts what waits, what is due and what runs":         surveyCounts,
		"a survey reads isolated runs and paused queues":                surveyIsolated,
	}
}

const interval = 20 * time.Second

// present is what a worker of the tests reports of itself.
func present() store.Presence {
	return store.Presence{Version: "v1.2 abcdef", Queues: []string{store.DefaultQueue, "slow"}, Jobs: []string{"mail", "old.mail"}, Capacity: 10,
		Executing: 3, Stuck: 1, BeatLag: store.Duration(7 * time.Millisecond), ShortOfCPU: store.Duration(time.Second), Every: store.Duration(interval)}
}

func (f *fixture) present(worker store.WorkerID, number int64, did ...store.LaneTally) store.Shared {
	f.t.Helper()
	shared, err := f.store.ReportWorker(f.ctx, store.WorkerReport{Worker: worker, Number: number, Presence: present(), Did: did})
	if err != nil {
		f.t.Fatalf("ReportWorker: %v", err)
	}
	return shared
}

func (f *fixture) workers() []store.WorkerInfo {
	f.t.Helper()
	workers, err := f.store.Workers(f.ctx)
	if err != nil {
		f.t.Fatalf("Workers: %v", err)
	}
	return workers
}

func (f *fixture) series(query store.SeriesQuery) []store.SeriesPoint {
	f.t.Helper()
	points, err := f.store.Series(f.ctx, query)
	if err != nil {
		f.t.Fatalf("Series: %v", err)
	}
	return points
}

func (f *fixture) survey() store.Survey {
	f.t.Helper()
	survey, err := f.store.Survey(f.ctx)
	if err != nil {
		f.t.Fatalf("Survey: %v", err)
	}
	return survey
}

// did is some work on the job "mail".
func did(succeeded int64) store.LaneTally {
	tally := store.Tally{Enqueued: 1, Succeeded: succeeded, Failed: 2, Dead: 3, Cancelled: 4, Crashed: 5, Busy: store.Duration(time.Second)}
	tally.Wait[0], tally.Took[store.Buckets-1] = 6, 7
	return store.LaneTally{Queue: store.DefaultQueue, Job: "mail", Tally: tally}
}

func reportAndStop(t *testing.T, f *fixture) {
	b, a := newWorker("b"), newWorker("a")
	if workers := f.workers(); workers == nil || len(workers) != 0 {
		t.Errorf("workers %+v", workers)
	}
	if shared := f.present(b, 1); shared.Alive != 1 || shared.Now.Sub(f.now()).Abs() > time.Minute {
		t.Errorf("answered %+v", shared)
	}
	if shared := f.present(a, 1); shared.Alive != 2 {
		t.Errorf("answered %+v", shared)
	}
	workers := f.workers()
	if len(workers) != 2 || workers[0].Name != "a" || workers[1].Instance != b.Instance {
		t.Fatalf("workers %+v", workers)
	}
	got, want := workers[1].Presence, present()
	if !slices.Equal(got.Queues, want.Queues) || !slices.Equal(got.Jobs, want.Jobs) || got.Version != want.Version || got.Capacity != 10 ||
		got.Executing != 3 || got.Stuck != 1 || got.Draining || got.BeatLag != want.BeatLag || got.ShortOfCPU != want.ShortOfCPU || got.Every != want.Every {
		t.Errorf("it is said to be %+v, want %+v", got, want)
	}
	if workers[1].State != store.Working || !workers[1].Serves("slow", "old.mail") || workers[1].Serves("fast", "mail") || workers[1].Serves("slow", "fax") {
		t.Errorf("worker %+v", workers[1])
	}
	draining := present()
	draining.Draining = true
	for number, report := range []store.WorkerReport{{Worker: b, Presence: draining}, {Worker: b, Presence: draining, Stopped: true}} {
		report.Number = int64(number) + 2
		if _, err := f.store.ReportWorker(f.ctx, report); err != nil {
			t.Fatal(err)
		}
		if workers = f.workers(); number == 0 && (workers[1].State != store.Draining || workers[1].Serves("slow", "mail")) {
			t.Errorf("worker %+v", workers[1])
		}
	}
	if len(workers) != 1 || workers[0].Name != "a" {
		t.Errorf("workers %+v", workers)
	}
	if shared := f.present(a, 2); shared.Alive != 1 {
		t.Errorf("answered %+v", shared)
	}
}

func declaredOnly(t *testing.T, f *fixture) {
	worker := newWorker("w")
	if err := f.store.Declare(f.ctx, store.Declaration{Worker: worker, Jobs: []store.JobInfo{{Name: "mail", Queue: "default", MaxAttempts: 1}}}); err != nil {
		t.Fatal(err)
	}
	if err := f.store.Touch(f.ctx, worker); err != nil {
		t.Fatal(err)
	}
	if workers := f.workers(); len(workers) != 0 {
		t.Errorf("workers %+v", workers)
	}
	f.present(worker, 1)
	if workers := f.workers(); len(workers) != 1 || workers[0].Instance != worker.Instance {
		t.Errorf("workers %+v", workers)
	}
}

func fallSilent(t *testing.T, f *fixture) {
	dead, other := newWorker("dead"), newWorker("other")
	f.present(dead, 1)
	f.advance(2 * interval)
	if workers := f.workers(); len(workers) != 1 || workers[0].State != store.Working || time.Duration(workers[0].SeenAgo) < 2*interval {
		t.Errorf("after two intervals: %+v", workers)
	}
	f.advance(interval + time.Second)
	if workers := f.workers(); len(workers) != 1 || workers[0].State != store.Silent || workers[0].Serves("slow", "mail") {
		t.Errorf("after three intervals: %+v", workers)
	}
	if shared := f.present(other, 1); shared.Alive != 1 {
		t.Errorf("answered %+v", shared)
	}
	f.present(dead, 2)
	if workers := f.workers(); workers[0].State != store.Working {
		t.Errorf("after a report: %+v", workers)
	}
	f.advance(store.ListedFor + time.Minute)
	if workers := f.workers(); len(workers) != 0 {
		t.Errorf("after a day: %+v", workers)
	}
}

func leaseSpeaks(t *testing.T, f *fixture) {
	worker := newWorker("w")
	f.present(worker, 1)
	f.enqueue(newRun())
	request := f.request(worker, 1)
	request.Duration = 10 * time.Minute
	if claimed, err := f.store.Claim(f.ctx, request); err != nil || len(claimed) != 1 {
		t.Fatalf("claimed %v, %v", claimed, err)
	}
	f.advance(5 * time.Minute)
	if workers := f.workers(); len(workers) != 1 || workers[0].State != store.Working || workers[0].Leases != 1 {
		t.Errorf("while it holds a lease: %+v", workers)
	}
	f.advance(6 * time.Minute)
	if workers := f.workers(); len(workers) != 1 || workers[0].State != store.Silent || workers[0].Leases != 0 {
		t.Errorf("when the lease has expired: %+v", workers)
	}
}

func reportAgain(t *testing.T, f *fixture) {
	worker := newWorker("w")
	for range 3 {
		f.present(worker, 1, did(10))
	}
	f.present(worker, 2, did(1))
	f.present(worker, 1, did(10)) // it was delayed
	points := f.series(store.SeriesQuery{Span: store.Quarter, Within: time.Hour})
	var sum store.Tally
	for i := range points {
		sum.Add(&points[i].Tally)
	}
	if want := (store.Tally{Enqueued: 2, Succeeded: 11, Failed: 4, Dead: 6, Cancelled: 8, Crashed: 10, Busy: store.Duration(2 * time.Second)}); sum.Succeeded != want.Succeeded ||
		sum.Enqueued != 2 || sum.Failed != 4 || sum.Dead != 6 || sum.Cancelled != 8 || sum.Crashed != 10 || sum.Busy != want.Busy || sum.Wait[0] != 12 || sum.Took[store.Buckets-1] != 14 {
		t.Errorf("the sum is %+v, want %+v", sum, want)
	}
	if shared := f.present(newWorker("other"), 1); shared.Alive != 2 {
		t.Errorf("answered %+v", shared)
	}
}

func reportRefused(t *testing.T, f *fixture) {
	good := func() store.WorkerReport {
		return store.WorkerReport{Worker: newWorker("w"), Number: 1, Presence: present(), Did: []store.LaneTally{did(1)}}
	}
	for what, spoil := range map[string]func(*store.WorkerReport){
		"number":   func(r *store.WorkerReport) { r.Number = 0 },
		"interval": func(r *store.WorkerReport) { r.Presence.Every = 0 },
		"queue":    func(r *store.WorkerReport) { r.Presence.Queues = []string{"a b"} },
		"job":      func(r *store.WorkerReport) { r.Presence.Jobs = []string{"\x00"} },
		"jobs":     func(r *store.WorkerReport) { r.Presence.Jobs = slices.Repeat([]string{"a"}, store.MaxReportNames+1) },
		"version":  func(r *store.WorkerReport) { r.Presence.Version = "\xff" },
		"length":   func(r *store.WorkerReport) { r.Presence.Version = strings.Repeat("v", store.MaxVersion+1) },
		"lane":     func(r *store.WorkerReport) { r.Did[0].Job = "" },
		"lanes":    func(r *store.WorkerReport) { r.Did = slices.Repeat(r.Did, store.MaxReportLanes+2) },
	} {
		report := good()
		spoil(&report)
		if _, err := f.store.ReportWorker(f.ctx, report); !errors.Is(err, store.ErrInvalid) {
			t.Errorf("%s: %v", what, err)
		}
	}
	for _, query := range []store.SeriesQuery{{Span: 2, Within: time.Hour}, {Span: store.Minute}, {Span: store.Minute, Within: time.Hour, Scope: 7},
		{Span: store.Quarter, Within: time.Hour, Step: time.Minute}, {Span: store.Minute, Within: time.Hour, Step: 7 * time.Minute}, {Span: store.Minute, Within: time.Hour, Step: 48 * time.Hour}} {
		if _, err := f.store.Series(f.ctx, query); !errors.Is(err, store.ErrInvalid) {
			t.Errorf("%+v: %v", query, err)
		}
	}
	if workers := f.workers(); len(workers) != 0 {
		t.Errorf("workers %+v", workers)
	}
}

func seriesAdd(t *testing.T, f *fixture) {
	a, b := newWorker("a"), newWorker("b")
	other := did(100)
	other.Job, other.Queue = store.OtherLanes, store.OtherLanes
	f.present(a, 1, did(1), other)
	f.advance(2 * time.Hour)
	f.present(a, 2, did(10))
	f.present(b, 1, did(20))
	f.present(b, 2)
	for _, span := range store.Spans() {
		all := f.series(store.SeriesQuery{Span: span, Within: time.Hour})
		var recent store.Tally
		for i := range all {
			recent.Add(&all[i].Tally)
			if all[i].Queue != "" || all[i].Job != "" {
				t.Errorf("%d min: %+v has names", span, all[i])
			}
		}
		if recent.Succeeded != 30 || recent.Wait[0] != 12 || len(all) > 2 {
			t.Errorf("%d min: in the last hour %+v", span, all)
		}
		seriesOfLongSteps(t, f, span)
		each := f.series(store.SeriesQuery{Span: span, Scope: store.EachLane, Within: 4 * time.Hour})
		if !slices.IsSortedFunc(each, func(a, b store.SeriesPoint) int { return a.At.Compare(b.At) }) {
			t.Errorf("%d min: %+v are out of order", span, each)
		}
		byJob := map[string]int64{}
		for _, p := range each {
			byJob[p.Job] += p.Succeeded
			if !p.At.Equal(p.At.Truncate(span.Length())) {
				t.Errorf("%d min: a step at %v", span, p.At)
			}
		}
		if byJob["mail"] != 31 || byJob[store.OtherLanes] != 100 || len(byJob) != 2 {
			t.Errorf("%d min: by job %v", span, byJob)
		}
	}
}

func seriesEnd(t *testing.T, f *fixture) {
	worker := newWorker("w")
	f.present(worker, 1, did(1))
	sweepAll := func() {
		t.Helper()
		f.advance(2 * store.SweepPassEvery)
		request := store.SweepRequest{By: uuid.New(), Limit: 100}
		for {
			done, err := f.store.Sweep(f.ctx, request)
			if err != nil || len(done.SetAside) > 0 {
				t.Fatalf("Sweep: %+v, %v", done, err)
			}
			if done.Done {
				return
			}
		}
	}
	count := func(span store.Span) int {
		return len(f.series(store.SeriesQuery{Span: span, Scope: store.EachLane, Within: 100 * 24 * time.Hour}))
	}
	sweepAll()
	if count(store.Minute) != 1 || count(store.Quarter) != 1 {
		t.Errorf("after two hours %d minutes and %d quarters", count(store.Minute), count(store.Quarter))
	}
	f.advance(store.Minute.Kept())
	sweepAll()
	if count(store.Minute) != 0 || count(store.Quarter) != 1 {
		t.Errorf("after eight hours %d minutes and %d quarters", count(store.Minute), count(store.Quarter))
	}
	f.advance(store.Quarter.Kept())
	sweepAll()
	if count(store.Quarter) != 0 {
		t.Errorf("after a month %d quarters", count(store.Quarter))
	}
}

// seriesOfLongSteps adds up what was done in four hours, by the day: once or twice, as
// midnight may lie between.
func seriesOfLongSteps(t *testing.T, f *fixture, span store.Span) {
	t.Helper()
	query := store.SeriesQuery{Span: span, Scope: store.EachLane, Within: 4 * time.Hour, Step: 24 * time.Hour, Job: "mail"}
	var long, plain, short store.Tally
	days := f.series(query)
	for i := range days {
		if days[i].At.Truncate(query.Step) != days[i].At || len(days) > 2 {
			t.Errorf("%d min: %+v are no days", span, days)
		}
		long.Add(&days[i].Tally)
	}
	query.NoTimes = true
	days = f.series(query)
	for i := range days {
		plain.Add(&days[i].Tally)
	}
	query.Step, query.NoTimes = 0, false
	steps := f.series(query)
	for i := range steps {
		short.Add(&steps[i].Tally)
	}
	if long != short || long.Succeeded == 0 || long.Wait[0] == 0 {
		t.Errorf("%d min: by the day %+v, by the step %+v", span, long, short)
	}
	short.Wait, short.Took = [store.Buckets]int64{}, [store.Buckets]int64{}
	if plain != short {
		t.Errorf("%d min: without times %+v, want %+v", span, plain, short)
	}
}

func surveyCounts(t *testing.T, f *fixture) {
	if survey := f.survey(); survey.Lanes == nil || len(survey.Lanes) != 0 || survey.At.IsZero() || survey.Partial {
		t.Errorf("survey %+v", survey)
	}
	f.enqueue(newRuns(3)...)
	f.enqueue(newRun(func(r *store.NewRun) { r.Priority = 2 }), newRun(func(r *store.NewRun) { r.After = time.Hour }),
		newRun(func(r *store.NewRun) { r.Queue, r.Job = "slow", "fax" }))
	f.claim(newWorker("w"), 2)
	survey := f.survey()
	if len(survey.Lanes) != 2 {
		t.Fatalf("survey %+v", survey)
	}
	mail, fax := survey.Lanes[0], survey.Lanes[1]
	if mail.Queue != store.DefaultQueue || mail.Job != "mail" || mail.Pending.N != 3 || mail.Due.N != 2 || mail.Running.N != 2 || mail.Paused {
		t.Errorf("survey %+v", mail)
	}
	if mail.OldestDue == nil || survey.At.Sub(*mail.OldestDue).Abs() > time.Minute {
		t.Errorf("oldest %v at %v", mail.OldestDue, survey.At)
	}
	if fax.Queue != "slow" || fax.Job != "fax" || fax.Pending.N != 1 || fax.Due.N != 1 || fax.Running.N != 0 || fax.Pending.Estimated {
		t.Errorf("survey %+v", fax)
	}
}

func surveyIsolated(t *testing.T, f *fixture) {
	f.enqueue(newRun())
	for range 2 {
		f.claimOne(newWorker("w"))
		f.advance(time.Minute)
		f.reclaim()
	}
	f.setQueue(store.DefaultQueue, store.PauseQueue)
	survey := f.survey()
	if len(survey.Lanes) != 1 || !survey.Lanes[0].Paused || survey.Lanes[0].Pending.N != 1 || survey.Lanes[0].Due.N != 1 || survey.Lanes[0].OldestDue == nil {
		t.Errorf("survey %+v", survey)
	}
}

// presenceCalls are the methods of Monitor and Stats. All reports are added to the sum.
func presenceCalls() map[string]func(*call) error {
	return map[string]func(*call) error{
		"ReportWorker": func(c *call) error {
			mine := did(1)
			mine.Queue = c.name
			_, err := c.store.ReportWorker(c.ctx, store.WorkerReport{Worker: newWorker(c.name), Number: 1, Presence: present(), Did: []store.LaneTally{did(2), mine}})
			return err
		},
		"Workers":  func(c *call) error { _, err := c.store.Workers(c.ctx); return err },
		"Facts":    func(c *call) error { _, err := c.store.Facts(c.ctx, store.NewRunID()); return err },
		"Problems": func(c *call) error { _, err := c.store.Problems(c.ctx, store.ProblemFilter{}); return err },
		"Survey":   func(c *call) error { _, err := c.store.Survey(c.ctx); return err },
		"Series": func(c *call) error {
			_, err := c.store.Series(c.ctx, store.SeriesQuery{Span: store.Minute, Within: time.Hour})
			return err
		},
	}
}
