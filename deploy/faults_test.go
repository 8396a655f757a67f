package deploy_test

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/lock"
	"github.com/durable-worker/durable-worker/observe"
	"github.com/durable-worker/durable-worker/observe/events"
	"github.com/durable-worker/durable-worker/observe/logs"
	"github.com/durable-worker/durable-worker/observe/metrics"
	"github.com/durable-worker/durable-worker/operate"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/memory"
)

// site is a store, perhaps with a worker, in virtual time.
type site struct {
	t      *testing.T
	db     *faulty
	job    durable.Job[int]
	tally  *observe.Tally
	worker *durable.Worker
	stream *events.Stream
	log    *logs.Writer
	sample *operate.Sample
	locks  *metrics.LockProbe
	readAt time.Time
	began  time.Time
	ctx    context.Context
	stop   context.CancelFunc
	free   chan struct{} // closed when the site ends: handlers that ignore their contexts return
	ended  sync.WaitGroup
}

func newSite(t *testing.T) *site {
	t.Helper()
	s := &site{t: t, db: &faulty{Store: memory.New(memory.Config{})}, job: durable.NewJob[int]("mail"), tally: observe.NewTally(), began: time.Now(), free: make(chan struct{})}
	s.ctx, s.stop = context.WithCancel(t.Context())
	return s
}

func (s *site) close() {
	s.stop()
	s.db.set(nil)
	close(s.free)
	s.ended.Wait()
	if s.log != nil {
		_ = s.log.Flush(context.Background()) // it may be broken
	}
}

func (s *site) elapsed() time.Duration { return time.Since(s.began) }

// pass lets time pass, and then takes a sample as a scrape does, if the store answers.
func (s *site) pass(d time.Duration) {
	time.Sleep(d) //nolint:forbidigo // virtual time of the bubble
	synctest.Wait()
	if s.db.fault("read") == nil {
		sample, err := operate.New(s.db.Store, operate.Config{}).Sample(s.t.Context())
		require.NoError(s.t, err)
		s.sample, s.readAt = &sample, time.Now()
	}
}

// work runs a worker; nil: a handler that succeeds.
func (s *site) work(handler func(ctx context.Context) error, change ...func(*durable.WorkerConfig)) {
	config := durable.WorkerConfig{Name: "w", Tally: s.tally, Elapsed: s.elapsed, Process: new(durable.Process), MaxConcurrentRuns: 1, Retry: durable.Exponential(time.Second, time.Second)}
	for _, one := range change {
		one(&config)
	}
	s.worker = durable.NewWorker(s.db, config)
	durable.Register(s.worker, s.job, func(ctx context.Context, _ *durable.Run[int]) error {
		if handler == nil {
			return nil
		}
		return handler(ctx)
	})
	s.ended.Go(func() { _ = s.worker.Run(s.ctx) }) // a handler that is abandoned is an error
	synctest.Wait()
}

func (s *site) enqueue(n int, options ...durable.Option) {
	s.t.Helper()
	for range n {
		_, err := s.job.Enqueue(s.ctx, durable.NewClient(s.db.Store), 0, options...)
		require.NoError(s.t, err)
	}
}

// snapshot is what /metrics shows.
func (s *site) snapshot() metrics.Snapshot {
	shown := metrics.Snapshot{Totals: s.tally.Totals(), Locks: s.locks}
	if d := s.sample; d != nil {
		shown.Database = &metrics.Database{Age: time.Since(s.readAt), At: d.Survey.At, Lanes: d.Survey.Lanes, Unserved: d.Unserved, Alive: d.Alive, Silent: d.Silent,
			ExpiredLeases: d.Survey.ExpiredLeases, Notices: d.Survey.Notices, OldestNotice: d.Survey.OldestNotice, Limits: d.Limits, Flagged: d.Flagged, Lateness: d.Lateness}
	}
	if s.worker != nil {
		w := s.worker.Status()
		shown.Worker = &metrics.Worker{Ready: w.Ready, Capacity: w.Capacity, Stuck: w.Stuck, BeatLag: w.BeatLag, LeaseMargin: w.LeaseMargin,
			Outages: w.Outages, Outage: w.Outage, Resting: w.Resting}
	}
	if s.stream != nil {
		e := s.stream.Totals()
		shown.Events = &metrics.Events{Sent: e.Sent, Dropped: e.Dropped, Failed: e.Failed, Waiting: e.Waiting}
	}
	if s.log != nil {
		shown.Log = &metrics.Log{Dropped: s.log.Dropped(), Blocked: s.log.Blocked()}
	}
	return shown
}

var errFault = errors.New("the database does not answer")

// faulty is a store in which some calls fail, by name, or are slow.
type faulty struct {
	*memory.Store

	mu     sync.Mutex
	faults map[string]error
	slow   time.Duration
}

func (f *faulty) set(faults map[string]error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.faults = faults
}

func (f *faulty) fault(call string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.faults[call]
}

func (f *faulty) Heads(ctx context.Context, serves store.Serves) ([]store.Head, error) {
	if f.slow > 0 {
		time.Sleep(f.slow) //nolint:forbidigo // virtual time of the bubble
	}
	if err := f.fault("heads"); err != nil {
		return nil, err
	}
	return f.Store.Heads(ctx, serves)
}

func (f *faulty) Renew(ctx context.Context, claims []lease.ClaimID, d time.Duration) ([]lease.ClaimID, error) {
	if err := f.fault("renew"); err != nil {
		return nil, err
	}
	return f.Store.Renew(ctx, claims, d)
}

func (f *faulty) Touch(ctx context.Context, worker store.WorkerID) error {
	if err := f.fault("reclaim"); err != nil {
		return err
	}
	return f.Store.Touch(ctx, worker)
}

func (f *faulty) Materialize(ctx context.Context, limit int, decide func(now time.Time, s store.Schedule) store.Decision) (store.MaterializeResult, error) {
	if err := f.fault("materialize"); err != nil {
		return store.MaterializeResult{}, err
	}
	return f.Store.Materialize(ctx, limit, decide)
}

func (f *faulty) Reclaim(ctx context.Context, request store.ReclaimRequest) (store.ReclaimResult, error) {
	if err := f.fault("reclaim"); err != nil {
		return store.ReclaimResult{}, err
	}
	return f.Store.Reclaim(ctx, request)
}

func (f *faulty) ReportWorker(ctx context.Context, report store.WorkerReport) (store.Shared, error) {
	if err := f.fault("report"); err != nil {
		return store.Shared{}, err
	}
	return f.Store.ReportWorker(ctx, report)
}

func nothingServes(_ *testing.T, s *site) {
	s.enqueue(3)
	s.pass(10 * time.Minute)
}

func workersUnseen(_ *testing.T, s *site) {
	s.db.set(map[string]error{"report": errFault})
	s.work(nil)
	s.pass(time.Minute)
}

func (s *site) hold(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-s.free:
		return nil
	}
}

func stuck(_ *testing.T, s *site) {
	s.work(func(context.Context) error { <-s.free; return nil })
	s.enqueue(1, durable.Timeout(time.Second))
	s.pass(2 * time.Minute)
}

func beatsLate(t *testing.T, s *site) {
	s.work(s.hold)
	s.enqueue(1)
	s.pass(time.Second)
	s.db.set(map[string]error{"renew": errFault})
	for s.worker.Status().LeaseMargin >= 0.2 {
		require.Less(t, s.elapsed(), time.Minute)
		s.pass(100 * time.Millisecond)
	}
}

func leaseLost(_ *testing.T, s *site) {
	s.work(s.hold)
	s.enqueue(1)
	s.pass(time.Second)
	s.db.set(map[string]error{"renew": errFault})
	s.pass(time.Minute)
}

func storeFails(_ *testing.T, s *site) {
	s.work(nil)
	s.db.set(map[string]error{"heads": errFault})
	s.pass(time.Minute)
}

func outages(_ *testing.T, s *site) {
	s.work(nil)
	s.pass(time.Minute)
	s.db.set(map[string]error{"heads": errFault, "renew": errFault, "report": errFault, "reclaim": errFault, "materialize": errFault})
	s.pass(3 * time.Minute)
}

func storeSlow(_ *testing.T, s *site) {
	s.db.slow = 700 * time.Millisecond
	s.work(nil)
	s.pass(time.Minute)
}

// crash leaves a run as a worker that was killed does.
func (s *site) crash() {
	s.t.Helper()
	s.enqueue(1)
	require.NoError(s.t, s.db.Declare(s.t.Context(), store.Declaration{Worker: store.WorkerID{Name: "gone", Instance: uuid.New()}, Jobs: []store.JobInfo{s.job.Info()}}))
	survey, err := s.db.Survey(s.t.Context())
	require.NoError(s.t, err)
	require.Len(s.t, survey.Lanes, 1)
	worker := durable.NewWorker(s.db.Store, durable.WorkerConfig{Elapsed: s.elapsed, Process: new(durable.Process), Terms: lease.Terms{Duration: 5 * time.Second}, DrainTimeout: -1, CancelGrace: -1})
	begun := make(chan struct{})
	durable.Register(worker, s.job, func(context.Context, *durable.Run[int]) error { close(begun); <-s.free; return nil })
	ctx, kill := context.WithCancel(s.ctx)
	s.ended.Go(func() { _ = worker.Run(ctx) }) // it abandons the handler: its lease expires
	<-begun
	kill()
	synctest.Wait()
}

func leasesExpired(_ *testing.T, s *site) {
	s.crash()
	s.pass(5 * time.Minute)
}

// inputsUnseen sends an input to a run whose worker is gone.
func inputsUnseen(t *testing.T, s *site) {
	s.crash()
	page, err := s.db.Runs(t.Context(), store.Filter{})
	require.NoError(t, err)
	require.Len(t, page.Runs, 1)
	_, err = s.db.Send(t.Context(), store.NewInput{Run: page.Runs[0].ID, Name: "approved", Value: []byte(`1`)})
	require.NoError(t, err)
	s.pass(5 * time.Minute)
}

func reclaimed(_ *testing.T, s *site) {
	s.crash()
	s.work(nil)
	s.pass(5 * time.Minute)
}

func runsDie(_ *testing.T, s *site) {
	s.work(func(context.Context) error { return durable.Permanent(errFault) })
	s.enqueue(1)
	s.pass(time.Second)
}

func runsFail(_ *testing.T, s *site) {
	s.work(func(context.Context) error { return errFault })
	s.enqueue(1)
	s.pass(time.Minute)
}

func saturated(_ *testing.T, s *site) {
	s.work(s.hold)
	s.enqueue(1002)
	s.pass(time.Minute)
}

func (s *site) declare(schedule store.Schedule) {
	s.t.Helper()
	schedule.Job, schedule.Queue, schedule.Args, schedule.MaxAttempts = "mail", "default", []byte(`0`), 3
	require.NoError(s.t, s.db.Declare(s.t.Context(), store.Declaration{Worker: store.WorkerID{Name: "old", Instance: uuid.New()},
		Jobs: []store.JobInfo{s.job.Info()}, Schedules: []store.Schedule{schedule}}))
}

func scheduleFaulty(_ *testing.T, s *site) {
	s.declare(store.Schedule{Name: "bad", Hash: "1", Rule: store.Cron("0 0 30 2 *", "UTC")}) // no worker of today declares this
	s.work(nil)
	s.pass(5 * time.Minute)
}

func scheduleLate(_ *testing.T, s *site) {
	s.declare(store.Schedule{Name: "late", Hash: "1", Rule: store.Every(time.Minute)})
	s.work(nil)
	s.pass(90 * time.Second)
	s.stop() // nothing evaluates it any more
	s.pass(10 * time.Minute)
}

func limitFull(t *testing.T, s *site) {
	_, err := operate.New(s.db.Store, operate.Config{}).As("ann").SetLimit(t.Context(), store.Limit{Name: "tenant", Kind: store.LimitSemaphore, Max: 0})
	require.NoError(t, err)
	s.work(nil)
	s.enqueue(1, durable.LimitedByUse(store.LimitUse{Limit: "tenant", Key: "acme"}))
	s.pass(15 * time.Minute)
}

func pausedWithWork(t *testing.T, s *site) {
	s.enqueue(5)
	_, err := operate.New(s.db.Store, operate.Config{}).As("ann").PauseQueue(t.Context(), "default")
	require.NoError(t, err)
	s.work(nil)
	s.pass(10 * time.Minute)
}

// away are locks whose store does not answer.
type away struct{ lock.Store }

func (away) Acquire(context.Context, lock.Request) (lock.Answer, error) {
	return lock.Answer{}, errFault
}

func (away) Release(context.Context, string, lease.ClaimID) (bool, error) { return false, errFault }

func locksAway(t *testing.T, s *site) {
	locker := lock.NewLocker(away{s.db.Locks()}, lock.LockerConfig{Hooks: s.tally.Hooks().Lock, Elapsed: s.elapsed})
	defer locker.Close()
	for range 5 {
		_, err := locker.TryAcquire(t.Context(), "tick", lock.Terms{Policy: lock.Skip})
		require.ErrorIs(t, err, lock.ErrUnavailable)
		s.pass(10 * time.Second)
	}
}

func lockStoreAway(t *testing.T, s *site) {
	began := s.elapsed()
	locker := lock.NewLocker(away{s.db.Locks()}, lock.LockerConfig{Elapsed: s.elapsed})
	defer locker.Close()
	health, err := locker.Probe(t.Context())
	require.ErrorIs(t, err, lock.ErrUnavailable)
	s.locks = &metrics.LockProbe{Healthy: health == lock.Healthy, Took: s.elapsed() - began}
}

func eventsDropped(_ *testing.T, s *site) {
	s.stream = events.New(events.SinkFunc(func(context.Context, events.Batch) error { return errFault }), events.Config{})
	s.ended.Go(func() { s.stream.Run(s.ctx) })
	s.work(nil, func(c *durable.WorkerConfig) { c.Hooks = s.stream.Hooks() })
	s.enqueue(3)
	s.pass(5 * time.Minute)
}

// place is where a log goes.
type place func(line []byte) (int, error)

func (p place) Write(line []byte) (int, error) { return p(line) }

// logInto has the worker of the site log, and execute something.
func (s *site) logInto(to place) {
	s.log = logs.New(to, logs.Config{})
	s.work(nil, func(c *durable.WorkerConfig) { c.Logger = slog.New(slog.NewTextHandler(s.log, nil)) })
	s.enqueue(3)
	s.pass(5 * time.Minute)
}

func logUnread(_ *testing.T, s *site) {
	s.logInto(func(line []byte) (int, error) { <-s.free; return len(line), nil })
}

func logBroken(_ *testing.T, s *site) {
	s.logInto(func([]byte) (int, error) { return 0, syscall.EPIPE })
}

func databaseAway(_ *testing.T, s *site) {
	s.work(nil)
	s.pass(time.Second)
	s.db.set(map[string]error{"read": errFault})
	s.pass(5 * time.Minute)
}
