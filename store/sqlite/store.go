package sqlite

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	_ "modernc.org/sqlite" // the driver

	"github.com/durable-worker/durable-worker/internal/admit"
	"github.com/durable-worker/durable-worker/internal/aside"
	"github.com/durable-worker/durable-worker/internal/board"
	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/sqlite/internal/queries"
)

// Synchronous says when a write is safe from the loss of power.
type Synchronous int

const (
	// SyncFull makes every write safe before its call returns.
	SyncFull Synchronous = iota
	// SyncNormal may lose the last writes when the power fails; a crash of the
	// program loses nothing.
	SyncNormal
)

// Config reports a store how to use its file. The zero value is usable.
type Config struct {
	// Clock answers the time. Default: the machine's clock. When it steps back
	// the store's time stops, or continues, but never goes back.
	Clock func() time.Time
	// Synchronous says when a write is safe. Default SyncFull.
	Synchronous Synchronous
	// LockTimeout is how long a write waits for another process that holds the
	// file before it fails. Default 5 s.
	LockTimeout time.Duration
	// Logger gets what a person should see. Default: nothing is logged.
	Logger *slog.Logger
}

// Store keeps runs in one SQLite file. Make it with Open. All methods may be
// called at the same time from many goroutines.
type Store struct {
	file        *file
	clock       clock
	marked      atomic.Int64 // of elapsed, when the time was last noted in the file; zero: never
	logger      *slog.Logger
	lockTimeout time.Duration
	level       string // the pragma that says when a write is safe

	// evaluating is held by the one Materialize call of this process that
	// evaluates. It is taken before the write queue, and only by TryLock.
	evaluating sync.Mutex
	aside      aside.Set[string]    // leases and runs that Reclaim could not change, by their bytes
	resting    aside.Set[string]    // schedules that Materialize could not advance
	unpruned   aside.Set[string]    // tables that Sweep could not prune
	undecided  aside.Set[string]    // batches that Release could not change, by their bytes
	elapsed    func() time.Duration // lease.Elapsed: what the four above go by, and marked

	// queue guards the writing connection and what depends on it.
	queue     writeQueue
	writes    *sql.DB
	conn      *connection // the one of writes
	fileLock  fileLock
	ctl       control
	turnBegun time.Time // when this process last began to write on a turn it took
	fits      fits
	ready     *prepared // nil until the schema was found in order
	closed    bool

	reads   *sql.DB
	readyMu sync.Mutex // guards looking
	reading *lookups   // nil until the schema was found in order

	batcher enqueueBatcher
	lanes   lanes
	seqs    seqCache
	tally   admit.Tally
	capped  board.Capped // the lanes whose runs claims move into the lines of caps
	signals board.Board
	woken   atomic.Int64 // those who wait for locks, by this process
}

var _ store.Store = (*Store)(nil)

// readers bounds the reading connections.
const readers = 4

// Open opens the file and makes it if it is not there; its directory must be.
// The schema is brought up to date by Migrate, not by Open. The path is a path,
// never a URI; it may be or contain a symbolic link. Open fails on a network file
// system, and when the file has a second name: a hard link, or on Linux a mount of
// the file without its directory.
func Open(ctx context.Context, path string, config Config) (*Store, error) {
	file, err := prepare(path)
	if err != nil {
		return nil, fmt.Errorf("open sqlite: %w", err)
	}
	s := &Store{
		file: file, clock: clock{read: config.Clock}, elapsed: lease.Elapsed,
		logger:      cmp.Or(config.Logger, slog.New(slog.DiscardHandler)),
		lockTimeout: cmp.Or(max(config.LockTimeout, 0), 5*time.Second),
	}
	for _, one := range file.exposure() {
		s.logger.Warn("the database file is within reach of others", "event", "store.file_exposed", "what", one.text, "do", one.hint)
	}
	if err := s.connect(ctx, config.Synchronous); err != nil {
		err = s.explain(err) // before what it needs to know is closed
		s.disconnect()
		return nil, fmt.Errorf("open sqlite: %w", err)
	}
	return s, nil
}

// connect opens the writing connection, which turns the write-ahead log on,
// and then the reading ones. The writing one does not wait for locks by itself:
// patience does, in finer steps.
func (s *Store) connect(ctx context.Context, synchronous Synchronous) error {
	s.level = "synchronous(full)"
	if synchronous == SyncNormal {
		s.level = "synchronous(normal)"
	}
	var err error
	s.writes, err = sql.Open("sqlite", s.file.dsn("journal_mode(wal)", s.level, "cache_size(-8192)", "temp_store(memory)",
		"wal_autocheckpoint(4000)", "journal_size_limit(67108864)"))
	if err != nil {
		return err
	}
	err = s.patience(ctx, func() error {
		conn, err := s.writes.Conn(ctx)
		if err == nil {
			s.conn = &connection{Conn: conn}
		}
		return err
	})
	if err != nil {
		return err
	}
	err = s.patience(ctx, func() error {
		return prepareAll(ctx, s.conn, map[string]**sql.Stmt{
			"Begin": &s.ctl.begin, "Commit": &s.ctl.commit, "Rollback": &s.ctl.rollback, "DataVersion": &s.ctl.version,
		})
	})
	if err != nil {
		return err
	}
	if err := s.patience(ctx, func() error { _, err := s.dataVersion(ctx); return err }); err != nil {
		return err
	}
	if err := s.file.opened(); err != nil {
		return err
	}
	if s.fileLock, err = openFileLock(s.file); err != nil {
		return err
	}
	s.reads, err = sql.Open("sqlite", s.file.dsn(fmt.Sprintf("busy_timeout(%d)", s.lockTimeout.Milliseconds()), "query_only(1)"))
	if err != nil {
		return err
	}
	s.reads.SetMaxOpenConns(readers)
	s.reads.SetMaxIdleConns(readers)
	return nil
}

// dataVersion changes when another connection, of this process or of another,
// has written. The caller is inside the write queue.
func (s *Store) dataVersion(ctx context.Context) (version int64, err error) {
	err = s.ctl.version.QueryRowContext(ctx).Scan(&version)
	return version, err
}

// Close waits for the write under way and closes the file. A call that comes later
// gets an error.
func (s *Store) Close() {
	_ = s.queue.enter(context.Background(), settles)
	defer s.queue.leave()
	if !s.closed {
		s.closed = true
		s.signals.End()
		s.disconnect()
	}
}

func (s *Store) disconnect() {
	var faults []error
	if s.reads != nil {
		faults = append(faults, s.reads.Close())
	}
	if s.conn != nil {
		faults = append(faults, s.conn.Close())
	}
	if s.writes != nil {
		faults = append(faults, s.writes.Close())
	}
	faults = append(faults, s.fileLock.close())
	if err := errors.Join(faults...); err != nil {
		s.logger.Warn("closing the database", "event", "store.close_failed", "path", s.file.path, "error", err)
	}
}

var errClosed = errors.New("the store is closed")

// change is what a write transaction works with.
type change struct {
	*prepared
	now     int64 // the store's time, read after the write lock was taken
	undealt int64 // rows of ready that a claim dropped and that named no pending run

	limits *knownLimits // nil until a part of the work needs them
	freed  bool         // a place was freed for which a run waits: workers are to know

	// carefully does a part of the work that can be rolled back alone; nil: none
	// needs to be.
	carefully func(ctx context.Context, part func() error) error
}

// write runs work in one write transaction. Once it has begun it is not
// interrupted by the end of ctx: it is short, and its outcome is then known.
func (s *Store) write(ctx context.Context, u urgency, work func(context.Context, *change) error) error {
	if err := s.queue.enter(ctx, u); err != nil {
		return err
	}
	defer s.queue.leave()
	if s.closed {
		return errClosed
	}
	if err := s.prepareFor(ctx, u); err != nil {
		return s.explain(err)
	}
	return s.explain(s.timed(ctx, work))
}

// transact runs work between begin and commit; work that fails or panics is
// rolled back. The caller is inside the write queue.
func (s *Store) transact(ctx context.Context, work func(context.Context) error) error {
	steady := context.WithoutCancel(ctx)
	if err := s.begin(ctx, steady); err != nil {
		return err
	}
	committed := false
	defer func() {
		if !committed { // SQLite may have rolled back already; then there is nothing to do
			_, _ = s.ctl.rollback.ExecContext(steady)
		}
	}()
	if err := s.file.check(); err != nil {
		return err
	}
	if err := work(steady); err != nil {
		return err
	}
	if _, err := s.ctl.commit.ExecContext(steady); err != nil {
		return err
	}
	committed = true
	return nil
}

// turnTimeout is how long a process waits for its turn before it asks for the
// write lock without: who has the turn may have been stopped.
const turnTimeout = 500 * time.Millisecond

// turnLength is how long a process may continue writing on one turn. Changing
// over at every transaction was measured to cost more than half of all writes.
const turnLength = 5 * time.Millisecond

// begin takes the write lock of the file when it is this process's turn.
func (s *Store) begin(ctx, steady context.Context) error {
	begin := func() error {
		_, err := s.ctl.begin.ExecContext(steady)
		return err
	}
	if time.Since(s.turnBegun) < turnLength {
		if err := begin(); !busy(err) {
			return err
		}
	}
	taken := s.fileLock.take()
	for begun := time.Now(); !taken && time.Since(begun) < turnTimeout; taken = s.fileLock.take() {
		if err := pause(ctx, time.Since(begun)); err != nil {
			return err
		}
	}
	if taken {
		defer s.fileLock.give()
	}
	err := s.patience(ctx, begin)
	s.turnBegun = time.Now()
	return err
}

// patience tries again while another process holds the file, up to the lock
// timeout.
func (s *Store) patience(ctx context.Context, try func() error) error {
	begun := time.Now()
	for {
		err := try()
		if !busy(err) {
			return err
		}
		waited := time.Since(begun)
		if waited >= s.lockTimeout {
			return fmt.Errorf("%s has been locked by another process for %v: %w", s.file.path, waited.Round(time.Millisecond), err)
		}
		if err := pause(ctx, waited); err != nil {
			return err
		}
	}
}

// pause waits for a random moment, a longer one after a longer wait.
func pause(ctx context.Context, waited time.Duration) error {
	most := min(100*time.Microsecond+waited/20, 5*time.Millisecond)
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(time.Duration(float64(most) * (0.5 + rand.Float64()))):
		return nil
	}
}

// prepareWrites examines the schema and prepares the statements, once. The
// caller is inside the write queue. It is not interrupted by the end of ctx: there are
// more than a hundred of them, and a machine too slow to prepare them all within
// one call's time would begin again with each call and never get on.
func (s *Store) prepareWrites(ctx context.Context) error {
	if s.ready != nil {
		return nil
	}
	ctx = context.WithoutCancel(ctx)
	if err := s.requireSchema(ctx, s.conn); err != nil {
		return err
	}
	generated, err := queries.Prepare(ctx, s.conn)
	if err != nil {
		return err
	}
	p := &prepared{Queries: generated}
	err = prepareAll(ctx, s.conn, map[string]**sql.Stmt{
		"ClaimStep": &p.claimStep, "UnreadyRange": &p.unready, "DropUnready": &p.dropUnready, "SettleSuccesses": &p.successes,
	})
	if err != nil {
		return err
	}
	for name, into := range map[string]*byNumber{"StartRuns": &p.start, "SettleNumbered": &p.settled, "DropTurns": &p.spare} {
		if err := prepareNumbered(ctx, s.conn, name, into); err != nil {
			return err
		}
	}
	if err := prepareRows(ctx, s.conn, &p.insertRuns); err != nil {
		return err
	}
	s.ready = p
	return nil
}

// read returns the statements of the reading connections. It prepares them once,
// whatever happens to ctx, as prepareWrites does.
func (s *Store) read(ctx context.Context) (*lookups, error) {
	if err := same(s.file.path, s.file.main); err != nil {
		return nil, err
	}
	s.readyMu.Lock()
	defer s.readyMu.Unlock()
	if s.reading != nil {
		return s.reading, s.servesStill(ctx, s.reads)
	}
	ctx = context.WithoutCancel(ctx)
	if err := s.requireSchema(ctx, s.reads); err != nil {
		return nil, err
	}
	generated, err := queries.Prepare(ctx, s.reads)
	if err != nil {
		return nil, err
	}
	l := &lookups{Queries: generated}
	if err := prepareAll(ctx, s.reads, l.counting()); err != nil {
		return nil, err
	}
	if err := s.clock.learn(ctx, l); err != nil {
		return nil, err
	}
	s.reading = l
	return l, nil
}
