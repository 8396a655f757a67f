package chaos_test

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/durablecmd"
	"github.com/durable-worker/durable-worker/internal/pgtest"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/backend"
)

// boundedArgs are of a run under limits.
type boundedArgs struct {
	For store.Duration `json:"for"`
}

var (
	tenantLimit = durable.NewLimit("tenant", durable.Semaphore(2))
	apiLimit    = durable.NewLimit("api", durable.Semaphore(4)) // the test changes it
	docLimit    = durable.NewLimit("doc", durable.Mutex())
	rateLimit   = durable.NewLimit("rate", durable.TokenBucket(ratePerSecond, time.Second, rateBurst))
	bounded     = durable.NewJob[boundedArgs]("bounded", durable.MaxAttempts(100))
	declares    = durable.NewJob[boundedArgs]("declares", durable.Limited(tenantLimit), durable.Limited(apiLimit), durable.Limited(docLimit),
		durable.Limited(rateLimit))
)

const (
	apiMost       = 4
	ratePerSecond = 50
	rateBurst     = 5
	cappedQueue   = "capped" // by an operator; its runs say nothing of that
	cappedMost    = 3
)

// registerBounded registers the job whose handler writes into a ledger, a file of its
// process, when it begins and when it ends.
func registerBounded(app *durablecmd.App) {
	if dir := os.Getenv("CHAOS_LEDGER"); dir != "" {
		boundedBy(app.Worker, dir, os.Getpid())
	}
}

// boundedBy registers it in a worker whose ledger is named by a number.
func boundedBy(w *durable.Worker, dir string, number int) {
	ledger, err := os.OpenFile(filepath.Join(dir, fmt.Sprint(number)), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600) //nolint:gosec // of the test
	if err != nil {
		panic(err)
	}
	note := func(what string, id durable.RunID, fence int64) {
		_, _ = fmt.Fprintf(ledger, "%s %s %d %d %d\n", what, id, fence, ledgerNow().UnixNano(), time.Now().UnixNano())
	}
	durable.Register(w, bounded, func(ctx context.Context, run *durable.Run[boundedArgs]) error {
		note("start", run.ID, int64(run.Fence))
		defer note("end", run.ID, int64(run.Fence))
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(time.Duration(run.Args.For)):
			return nil
		}
	})
	durable.Register(w, declares, func(context.Context, *durable.Run[boundedArgs]) error { return nil })
}

// stay is one execution, as the ledger has it.
type stay struct {
	run      durable.RunID
	from, to time.Time
}

// pit is a test of limits: workers, what has happened to them, and the runs.
type pit struct {
	t   *testing.T
	db  backend.Store
	dsn string
	dir string

	uses map[durable.RunID][]store.LimitUse
	make func() durable.NewRun
	runs int // enqueued in all

	workers []*worker
	clocks  []string       // of the machines on which workers run by turns; none: the real one
	ended   map[int][]halt // by process: what it executed then counts until there
	changes []limitChange  // of the limit api, in their order
	started int
}

// halt is when a process was killed, or stopped for longer than its lease: it was under way
// before the signal was sent, and did nothing more a while after that.
type halt struct{ sent, done time.Time }

// limitChange is a value of a limit, with when the call that set it began and had ended.
type limitChange struct {
	begun, done time.Time
	most        int
}

// The clock of this server is hours ahead of that of the workers, and they lose some of its
// answers.
func TestLimitsHold_PostgreSQL(t *testing.T) {
	dsn := pgtest.DatabaseOn(t, pgtest.StartAt(t, time.Now().Add(5*time.Hour)).URL())
	losing, through := loseAnswers(t, dsn)
	limitsHold(t, dsn, through)
	require.Positive(t, losing.lost.Load())
	t.Logf("%d answers were lost", losing.lost.Load())
}

func TestLimitsHold_SQLite(t *testing.T) {
	t.Parallel()
	dsn := sqliteDSN(t)
	limitsHold(t, dsn, dsn)
}

// newPit makes a test of limits over a store.
func newPit(t *testing.T, db backend.Store) *pit {
	return &pit{t: t, db: db, dir: t.TempDir(), uses: map[durable.RunID][]store.LimitUse{}, ended: map[int][]halt{},
		changes: []limitChange{{most: apiMost}}, make: underSeveral, runs: 150}
}

// limitsHold kills, stops and replaces workers and changes limits, while runs with up to
// four limits each execute, some of them on a capped queue, and then adds up the ledger,
// which the store has no part in. The workers have a way of their own to the store, and run
// by turns on machines with clocks of their own.
func limitsHold(t *testing.T, dsn, ofWorkers string, clocks ...string) *pit {
	t.Helper()
	p := newPit(t, openStore(t, dsn))
	p.dsn, p.clocks = ofWorkers, clocks
	for range 3 {
		p.start()
	}
	p.holds(p.trouble)
	return p
}

// holds enqueues runs for the workers that there are and has trouble come between them. In
// the end every run has succeeded, within the limits, and nothing is held.
func (p *pit) holds(trouble func(n int)) {
	p.t.Helper()
	troubles := 5
	if os.Getenv("DURABLE_TEST_LONG") != "" {
		p.runs, troubles = 20*p.runs, 60
	}
	p.cap(store.SetLimit)
	require.Eventually(p.t, func() bool {
		limits, err := p.db.ListLimits(p.t.Context(), store.LimitFilter{})
		return err == nil && len(limits) == 4
	}, time.Minute, 20*time.Millisecond, "the limits are declared")
	for i := range troubles {
		p.enqueue(p.runs / troubles)
		trouble(i)
	}
	p.set(apiMost)
	for _, w := range p.workers {
		_ = w.cmd.Process.Signal(syscall.SIGCONT)
	}
	until(p.t, p.db, 4*time.Minute, "every run succeeds", func(c map[durable.State]store.Count) bool {
		return c[durable.Pending].N == 0 && c[durable.Running].N == 0
	})
	p.nothingHeld()
	p.addUp()
	p.checkRate()
}

// enqueue enqueues runs.
func (p *pit) enqueue(n int) {
	p.t.Helper()
	runs := make([]durable.NewRun, n)
	for i := range runs {
		runs[i] = p.newRun()
	}
	_, err := durable.NewClient(p.db).Enqueue(p.t.Context(), runs...)
	require.NoError(p.t, err)
}

// nothingHeld expects that every run has succeeded, and that none holds or awaits a place.
func (p *pit) nothingHeld() {
	p.t.Helper()
	counts, err := p.db.Counts(p.t.Context())
	require.NoError(p.t, err)
	require.Equal(p.t, int64(len(p.uses)), counts[durable.Succeeded].N, "nothing is lost: %v", counts)
	faults, err := p.db.CheckLimits(p.t.Context())
	require.NoError(p.t, err)
	require.Empty(p.t, faults)
	limits, err := p.db.ListLimits(p.t.Context(), store.LimitFilter{Caps: true})
	require.NoError(p.t, err)
	require.Len(p.t, limits, 5)
	for _, l := range limits {
		require.Zero(p.t, l.InUse.N+l.Waiting.N, "%s is held, or waited for, at the end", l.Name)
	}
}

// cap sets, drains or resumes the cap of a queue.
func (p *pit) cap(command store.LimitCommand) {
	p.t.Helper()
	limit := store.Limit{Name: store.QueueCap(cappedQueue), Kind: store.LimitSemaphore, Max: cappedMost}
	require.NoError(p.t, p.db.ChangeLimit(p.t.Context(), store.LimitChange{Command: command, Limit: limit, By: "chaos"}))
}

func (p *pit) start() {
	p.started++
	env := []string{"CHAOS_LEDGER=" + p.dir, "DURABLE_MAX_CONCURRENT_RUNS=8", "DURABLE_QUEUES=default," + cappedQueue}
	if n := len(p.clocks); n > 0 {
		env = append(env, "CHAOS_CLOCK="+p.clocks[p.started%n])
	}
	p.workers = append(p.workers, startWorker(p.t, p.dsn, fmt.Sprintf("w%d", p.started), env...))
}

// newRun makes a run and remembers its limits.
func (p *pit) newRun() durable.NewRun {
	run := p.make()
	if p.uses[run.ID] = run.Limits; run.Queue == cappedQueue {
		p.uses[run.ID] = append(slices.Clip(run.Limits), store.LimitUse{Limit: store.QueueCap(cappedQueue)})
	}
	return run
}

// underSeveral makes a run under up to four limits, beside the cap of its queue.
func underSeveral() durable.NewRun {
	options := []durable.Option{durable.Priority(rand.IntN(3) - 1)}
	limits := rand.Perm(4)[:rand.IntN(5)]
	for _, n := range limits {
		key := string(rune('a' + rand.IntN(3)))
		switch n {
		case 0:
			options = append(options, durable.LimitedBy(tenantLimit, key))
		case 1:
			options = append(options, durable.LimitedBy(apiLimit, "", durable.Weight(1+rand.IntN(2))))
		case 2:
			options = append(options, durable.LimitedBy(docLimit, key))
		default:
			options = append(options, durable.LimitedBy(rateLimit, ""))
		}
	}
	if rand.IntN(3) == 0 {
		options = append(options, durable.OnQueue(cappedQueue))
	}
	return bounded.New(boundedArgs{For: store.Duration(time.Duration(5+rand.IntN(60)) * time.Millisecond)}, options...)
}

// trouble is what happens to the workers, one sort after the other.
func (p *pit) trouble(n int) {
	switch n % 5 {
	case 0, 3:
		at := rand.IntN(len(p.workers))
		<-time.After(300 * time.Millisecond)
		p.halt(p.workers[at], syscall.SIGKILL)
		p.workers = slices.Delete(p.workers, at, at+1)
		p.start()
	case 1:
		p.set(2)
		<-time.After(500 * time.Millisecond)
	case 2: // for longer than its lease
		one := p.workers[rand.IntN(len(p.workers))]
		p.halt(one, syscall.SIGSTOP)
		<-time.After(leaseDuration + time.Second)
		one.signal(syscall.SIGCONT)
	default:
		p.set(3 + rand.IntN(4))
		change := store.LimitChange{Command: store.DrainLimit, Limit: store.Limit{Name: "tenant"}, By: "chaos"}
		require.NoError(p.t, p.db.ChangeLimit(p.t.Context(), change))
		p.cap(store.DrainLimit)
		<-time.After(300 * time.Millisecond)
		p.cap(store.ResumeLimit)
		change.Command = store.ResumeLimit
		require.NoError(p.t, p.db.ChangeLimit(p.t.Context(), change))
	}
}

func (p *pit) halt(w *worker, by syscall.Signal) {
	sent := ledgerNow()
	w.signal(by)
	p.ended[w.cmd.Process.Pid] = append(p.ended[w.cmd.Process.Pid], halt{sent, ledgerNow().Add(200 * time.Millisecond)})
}

// set changes the limit api while runs execute.
func (p *pit) set(most int) {
	p.t.Helper()
	began := ledgerNow()
	set := store.LimitChange{Command: store.SetLimit, By: "chaos", Limit: store.Limit{Name: "api", Kind: store.LimitSemaphore, Max: most}}
	require.NoError(p.t, p.db.ChangeLimit(p.t.Context(), set))
	p.changes = append(p.changes, limitChange{began, ledgerNow(), most})
}

// stays reads the ledger. What a process executed when it was killed, or stopped for longer
// than its lease, counts until that moment.
func (p *pit) stays() (all []stay) {
	files, err := filepath.Glob(filepath.Join(p.dir, "*"))
	require.NoError(p.t, err)
	for _, name := range files {
		var pid int
		_, err := fmt.Sscan(filepath.Base(name), &pid)
		require.NoError(p.t, err)
		file, err := os.Open(name) //nolint:gosec // of the test
		require.NoError(p.t, err)
		var here []stay
		open := map[string]int{}
		for lines := bufio.NewScanner(file); lines.Scan(); {
			words := strings.Fields(lines.Text())
			if len(words) < 4 {
				continue // the last line of one that was killed
			}
			var nanos int64
			_, err := fmt.Sscan(words[3], &nanos)
			require.NoError(p.t, err)
			at, id := time.Unix(0, nanos), words[1]+words[2]
			if words[0] == "start" {
				run, err := durable.ParseRunID(words[1])
				require.NoError(p.t, err)
				open[id] = len(here)
				here = append(here, stay{run: run, from: at})
			} else if n, found := open[id]; found {
				here[n].to = at
				delete(open, id)
			}
		}
		require.NoError(p.t, file.Close())
		for i := range here {
			for _, end := range p.ended[pid] {
				s := &here[i]
				if !s.from.After(end.done) && (s.to.IsZero() || s.to.After(end.done)) {
					s.to = end.sent
					if s.from.After(end.sent) {
						s.to = s.from
					}
				}
			}
		}
		all = append(all, here...)
	}
	return all
}

// addUp sweeps over the beginnings and ends of all executions.
func (p *pit) addUp() {
	p.t.Helper()
	all := p.stays()
	require.GreaterOrEqual(p.t, len(all), len(p.uses), "the ledger has every run")
	type event struct {
		at    time.Time
		by    int // places; negative: an end
		limit string
	}
	events := map[string][]event{}
	for _, s := range all {
		for _, use := range p.uses[s.run] {
			if use.Limit == "rate" {
				continue
			}
			key := use.Limit + "=" + use.Key
			events[key] = append(events[key], event{s.from, use.Places(), use.Limit}, event{s.to, -use.Places(), use.Limit})
		}
	}
	for key, line := range events {
		slices.SortFunc(line, func(a, b event) int {
			if c := a.at.Compare(b.at); c != 0 {
				return c
			}
			return a.by - b.by // who ends at an instant has ended
		})
		used, highest := 0, 0
		for _, e := range line {
			used += e.by
			highest = max(highest, used)
			if most := p.most(e.limit, e.at); e.by > 0 && used > most && used > e.by {
				p.t.Errorf("%s: %d places are taken at %v, and there are %d", key, used, e.at, most)
			}
		}
		require.Zero(p.t, used)
		p.t.Logf("%s: %d executions, at most %d places", key, len(line)/2, highest)
	}
}

// checkRate holds the starts of runs under the bucket, by the store's clock, to its promise.
func (p *pit) checkRate() {
	p.t.Helper()
	var starts []time.Time
	for id, uses := range p.uses {
		if !slices.ContainsFunc(uses, func(use store.LimitUse) bool { return use.Limit == "rate" }) {
			continue
		}
		record, err := p.db.Run(p.t.Context(), id)
		require.NoError(p.t, err)
		starts = append(starts, *record.StartedAt)
	}
	slices.SortFunc(starts, time.Time.Compare)
	for i := range starts {
		for k := i + rateBurst; k < len(starts); k++ {
			least := time.Duration(k-i+1-rateBurst) * time.Second / ratePerSecond
			require.GreaterOrEqual(p.t, starts[k].Sub(starts[i]), least-time.Microsecond, "%d starts", k-i+1)
		}
	}
	p.t.Logf("rate: %d starts", len(starts))
}

// settling is how long after its admission a handler begins at the latest: what a limit said
// within it may still hold.
const settling = 3 * time.Second

// most is how many places a limit had when a run that begins now was admitted.
func (p *pit) most(limit string, at time.Time) (most int) {
	switch limit {
	case "tenant":
		return 2
	case "doc":
		return 1
	case store.QueueCap(cappedQueue):
		return cappedMost
	}
	for i, c := range p.changes {
		until := at
		if i+1 < len(p.changes) {
			until = p.changes[i+1].done
		}
		if !c.begun.After(at) && !until.Before(at.Add(-settling)) {
			most = max(most, c.most)
		}
	}
	return most
}
