// Package scene makes a store with something of everything in it, for pictures of the
// dashboard and for tests in a browser: workers at work, retries, dead runs, schedules,
// limits, locks, and a day of figures.
package scene

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/lock"
	"github.com/durable-worker/durable-worker/operate"
	"github.com/durable-worker/durable-worker/operate/access"
	"github.com/durable-worker/durable-worker/operate/dashboard"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/memory"
)

// Scene is a store and its pages, with workers at work.
type Scene struct {
	URL      string // of the pages
	Operator *operate.Operator

	db     Database
	past   *past // nil: the store's clock is its own
	server *httptest.Server
	stop   context.CancelFunc
	worked []chan error
}

// Database is what a store of a scene has.
type Database interface {
	store.Store
	Locks() lock.Locks
}

// past is a clock that can be behind.
type past struct{ behind atomic.Int64 }

// Order is the args of the jobs of the scene.
type Order struct {
	Number   int      `json:"number"`
	Customer string   `json:"customer"`
	Total    float64  `json:"total"`
	Lines    []string `json:"lines"`
	Express  bool     `json:"express"`
}

// Empty makes pages of a store in which nothing has ever run.
func Empty() (*Scene, error) {
	clock := &past{}
	return on(memory.New(memory.Config{Clock: func() time.Time { return time.Now().Add(-time.Duration(clock.behind.Load())) }}), clock)
}

// on makes the pages of a store.
func on(db Database, clock *past) (*Scene, error) {
	s := &Scene{db: db, past: clock, stop: func() {}}
	s.Operator = operate.New(s.db, operate.Config{Locks: s.db.Locks()})
	pages, err := dashboard.New(s.Operator, dashboard.Config{Auth: access.Func(func(*http.Request) (access.Who, error) {
		return access.Who{Name: "ada", Role: access.Operator, Way: "test", Address: "127.0.0.1"}, nil
	}), Title: "shop"})
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.Handle("/ops/durable/", http.StripPrefix("/ops/durable", pages))
	s.server = httptest.NewServer(mux)
	s.URL = s.server.URL + "/ops/durable/"
	return s, nil
}

// Full makes pages of a store in memory with something of everything, and figures of a
// day.
func Full(ctx context.Context) (*Scene, error) {
	s, err := Empty()
	if err != nil {
		return nil, err
	}
	if err := s.aDay(ctx); err != nil {
		return s, err
	}
	return s, s.begin(ctx)
}

// EmptyOn makes pages of another store as it is.
func EmptyOn(db Database) (*Scene, error) { return on(db, nil) }

// FullOn makes pages of another store with something of everything.
func FullOn(ctx context.Context, db Database) (*Scene, error) {
	s, err := on(db, nil)
	if err != nil {
		return nil, err
	}
	return s, s.begin(ctx)
}

func (s *Scene) begin(ctx context.Context) error {
	ctx, s.stop = context.WithCancel(ctx)
	s.work(ctx)
	return s.fill(ctx)
}

// Close ends the workers and the pages.
func (s *Scene) Close() error {
	s.stop()
	var faults []error
	for _, worked := range s.worked {
		faults = append(faults, <-worked)
	}
	s.server.CloseClientConnections()
	s.server.Close()
	s.Operator.Close()
	return errors.Join(faults...)
}

// aDay stores the figures of a day.
func (s *Scene) aDay(ctx context.Context) error {
	worker := store.WorkerID{Name: "web-1", Instance: uuid.New()}
	left := 24 * time.Hour
	for i := 0; left > 0; i++ {
		s.past.behind.Store(int64(left))
		step := 15 * time.Minute
		if left <= time.Hour {
			step = time.Minute
		}
		x := float64(i)
		n := int64((42 + 22*math.Sin(x/9) + 6*math.Sin(x*1.7)) * step.Minutes())
		did := store.LaneTally{Queue: "mail", Job: "mail.send", Tally: store.Tally{Enqueued: n, Succeeded: n - n/16, Failed: n / 18,
			Busy: store.Duration(time.Duration(n) * 2600 * time.Millisecond)}}
		if i%17 == 3 {
			did.Failed, did.Dead = did.Failed+n/6, n/30
		}
		did.Took[4], did.Took[6], did.Took[7], did.Took[9], did.Took[11] = n/2, n/4, n/8, n/10+int64(i%5), n/60+int64(i%19/16)
		did.Wait[0], did.Wait[1], did.Wait[3], did.Wait[6] = n/2, n/3, n/9, n/40+int64(i%13/10)*n/20
		if _, err := s.db.ReportWorker(ctx, store.WorkerReport{Worker: worker, Number: int64(i + 1), Did: []store.LaneTally{did}, Stopped: true,
			Presence: store.Presence{Every: store.Duration(20 * time.Second), Queues: []string{"mail"}, Jobs: []string{"mail.send"}}}); err != nil {
			return err
		}
		left -= step
	}
	s.past.behind.Store(0)
	return nil
}

// jobs are those of the scene.
func mail() durable.Job[Order] { return durable.NewJob[Order]("mail.send", durable.OnQueue("mail")) }

func invoice() durable.Job[Order] {
	return durable.NewJob[Order]("invoice.render", durable.MaxAttempts(3), durable.Retry(durable.Fixed(300*time.Millisecond)))
}

func sync() durable.Job[Order] {
	return durable.NewJob[Order]("crm.sync", durable.OnQueue("sync"), durable.Retry(durable.Fixed(10*time.Minute)),
		durable.Limited(durable.NewLimit("crm-customer", durable.Mutex()), durable.KeyOf("{customer}")))
}

func upload() durable.Job[Order] {
	return durable.NewJob[Order]("catalog.import", durable.OnQueue("bulk"), durable.Timeout(time.Hour),
		durable.Limited(durable.NewLimit("shop-api", durable.TokenBucket(30, time.Minute, 10))))
}

func report() durable.Job[Order] { return durable.NewJob[Order]("report.nightly") }

func lost() durable.Job[Order] {
	return durable.NewJob[Order]("legacy.export", durable.OnQueue("legacy"))
}

// work begins the workers.
func (s *Scene) work(ctx context.Context) {
	begin := func(name string, queues ...string) *durable.Worker {
		config := durable.WorkerConfig{Name: name, MaxConcurrentRuns: 12, Version: "v1.14.2"}
		for _, queue := range queues {
			config.Queues = append(config.Queues, durable.Queue{Name: queue})
		}
		w := durable.NewWorker(s.db, config)
		durable.Register(w, mail(), send)
		return w
	}
	first := begin("web-3", "default", "mail", "sync", "bulk")
	durable.Register(first, invoice(), render)
	durable.Register(first, sync(), waitFor)
	durable.Register(first, upload(), waitFor)
	durable.Register(first, report(), send)
	order := Order{Customer: "ops"}
	durable.AddSchedule(first, "nightly-report", report(), order, durable.Cron("0 3 * * *", "Europe/Berlin"))
	durable.AddSchedule(first, "month-end", report(), order, durable.Cron("0 6 1 * *", "America/New_York"))
	durable.AddSchedule(first, "ping", mail(), order, durable.Every(2*time.Second))
	for _, w := range []*durable.Worker{first, begin("web-4", "mail")} {
		worked := make(chan error, 1)
		s.worked = append(s.worked, worked)
		go func() { worked <- w.Run(ctx) }()
	}
}

func send(_ context.Context, run *durable.Run[Order]) error {
	run.Log().Info("sending", "customer", run.Args.Customer)
	return run.SetResult(map[string]any{"message": fmt.Sprintf("msg_%d", 88000+run.Args.Number), "accepted": true})
}

func render(_ context.Context, run *durable.Run[Order]) error {
	run.Log().Warn("the template is old", "version", 3)
	switch {
	case run.Args.Number%7 == 0:
		return fmt.Errorf("render invoice %d: template \"invoice.de.html\": field Customer.VatID is missing", run.Args.Number)
	case run.Args.Number%11 == 0:
		panic("runtime error: index out of range [3] with length 3")
	case run.Args.Number%5 == 0 && run.Attempt < 3:
		return errors.New("POST https://pdf.example/v2/render: 503 Service Unavailable")
	default:
		return run.SetResult(map[string]int{"pages": 2})
	}
}

// waitFor works until the scene ends.
func waitFor(ctx context.Context, run *durable.Run[Order]) error {
	share := 0.2 + float64(run.Args.Number%7)/10
	if err := run.Progress(ctx, share, fmt.Sprintf("%.0f of 1,200 rows", 1200*share)); err != nil {
		return err
	}
	<-ctx.Done()
	return context.Cause(ctx)
}

// fill enqueues runs of every kind and waits until those that end have ended.
func (s *Scene) fill(ctx context.Context) error {
	client := durable.NewClient(s.db)
	customers := []string{"acme", "globex", "initech", "umbrella"}
	number := 0
	next := func() Order {
		number++
		return Order{Number: number, Customer: customers[number%4], Total: float64(number%90) * 7.95, Lines: []string{"socks", "shoes"}, Express: number%5 == 0}
	}
	for { // until the worker has declared its limits
		if _, err := client.Enqueue(ctx, sync().New(next(), durable.Tags("customer:acme"))); err == nil {
			break
		} else if !errors.Is(err, store.ErrUnknownLimit) {
			return err
		}
		time.Sleep(5 * time.Millisecond) //nolint:forbidigo // of a program for pictures
	}
	var runs []store.NewRun
	for i := range 60 {
		runs = append(runs, mail().New(next(), durable.Tags("campaign:june")), invoice().New(next()))
		if i%8 == 0 {
			runs = append(runs, sync().New(next()), upload().New(next()), lost().New(next()), mail().New(next(), durable.After(3*time.Hour), durable.Priority(2)))
		}
	}
	if _, err := client.Enqueue(ctx, runs...); err != nil {
		return err
	}
	if err := s.invoiced(ctx); err != nil {
		return err
	}
	ada := s.Operator.As("ada@ops")
	if _, err := ada.PauseUnusedQueue(ctx, "newsletter"); err != nil {
		return err
	}
	if _, err := client.Enqueue(ctx, mail().New(next(), durable.OnQueue("newsletter")), mail().New(next(), durable.OnQueue("newsletter"))); err != nil {
		return err
	}
	locker := lock.NewLocker(s.db.Locks(), lock.LockerConfig{Owner: "web-3"})
	if _, err := locker.TryAcquire(ctx, "search-index", lock.Terms{Terms: lease.Terms{Duration: time.Hour}}); err != nil {
		return err
	}
	list, err := s.Operator.Runs(ctx, store.Filter{Jobs: []string{"mail.send"}, States: []store.State{store.Pending}, Limit: 1})
	if err != nil {
		return err
	}
	_, err = ada.Cancel(ctx, "the customer has called", list.Runs[0].ID)
	return err
}

// invoiced waits until all invoices have ended, some of them in dead.
func (s *Scene) invoiced(ctx context.Context) error {
	for {
		list, err := s.Operator.Runs(ctx, store.Filter{Jobs: []string{"invoice.render"}, States: []store.State{store.Pending, store.Running}, Limit: 1})
		if err != nil || len(list.Runs) == 0 {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// Pages are the pages of the scene by a name for each: those that are there in any store,
// and those of one run in each state, one schedule, limit, job and worker, and of what asks.
func (s *Scene) Pages(ctx context.Context) (map[string]string, error) {
	pages := Everywhere()
	for name, path := range map[string]string{"overview-24h": "?range=24h", "schedule": "schedules?name=ping", "limit": "limits?name=crm-customer&key=acme", "enqueue": "runs/new?job=mail.send",
		"job": "jobs?name=invoice.render", "change-all": "runs/change?action=delete&all=true&job=mail.send", "pause": "queues/change?name=mail&action=pause",
		"schedule-edit": "schedules/edit?name=nightly-report", "runs-filtered": "runs?state=dead&job=invoice.render", "runs-none": "runs?tag=none", "limit-set": "limits/change?name=crm-customer&action=set"} {
		pages[name] = path
	}
	for _, state := range store.States() {
		list, err := s.Operator.Runs(ctx, store.Filter{States: []store.State{state}, Limit: 1})
		if err != nil {
			return nil, err
		}
		for i := range list.Runs {
			pages["run-"+state.String()] = "runs/" + list.Runs[i].ID.String()
			if state == store.Dead {
				pages["rerun"] = "runs/" + list.Runs[i].ID.String() + "/rerun"
			}
		}
	}
	workers, err := s.Operator.Workers(ctx, operate.Part{})
	for i := range workers.Workers {
		pages["worker"] = "workers/" + workers.Workers[i].Instance.String()
	}
	return pages, err
}

// Everywhere are the pages that are there in any store, by a name for each.
func Everywhere() map[string]string {
	pages := map[string]string{"overview": "", "nowhere": "nowhere"}
	for _, page := range []string{"runs", "problems", "queues", "jobs", "schedules", "workers", "limits", "locks", "audit", "health", "bulk", "login"} {
		pages[page] = page
	}
	return pages
}
