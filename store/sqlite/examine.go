package sqlite

import (
	"context"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/durable-worker/durable-worker/internal/rules"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/sqlite/internal/queries"
)

const (
	leastSpace = 256 << 20 // bytes free on the disk
	longestLog = 256 << 20 // bytes of the write-ahead log

	nameIntegrity = "integrity"

	// aheadMost is how far another process's clock may be ahead without a word.
	aheadMost = 5 * time.Second
)

// Examine examines the file and its contents for what an operator should
// know, and says what to do. It changes nothing, and reads the whole file once.
// Of a damaged file, and without the schema of this program, only the file is
// examined. An error means that the examination itself could not continue.
func (s *Store) Examine(ctx context.Context) (store.Findings, error) {
	var f store.Findings
	if err := s.examineFile(ctx, &f); err != nil {
		return f, fmt.Errorf("examine: %w", s.explain(err))
	}
	s.examineDisk(&f)
	damaged := slices.ContainsFunc(f, func(one store.Finding) bool { return one.Name == nameIntegrity && one.Level == store.Failed })
	if err := s.requireSchema(ctx, s.reads); err != nil || damaged {
		return f, nil //nolint:nilerr // who asks has examined the schema himself
	}
	if err := s.examineWork(ctx, &f); err != nil {
		return f, fmt.Errorf("examine: %w", s.explain(err))
	}
	if err := s.examineStranded(ctx, &f); err != nil {
		return f, fmt.Errorf("examine: %w", s.explain(err))
	}
	return f, nil
}

// examineFile examines how the file is used, and whether it is whole.
func (s *Store) examineFile(ctx context.Context, f *store.Findings) error {
	var journal, integrity string
	var synchronous int
	if err := s.reads.QueryRowContext(ctx, texts()["ExamineJournal"]).Scan(&journal); err != nil {
		return err
	}
	if err := s.queue.enter(ctx, enqueues); err != nil {
		return err
	}
	err := s.conn.QueryRowContext(ctx, texts()["ExamineSynchronous"]).Scan(&synchronous)
	s.queue.leave()
	if err != nil {
		return err
	}
	const full = 2
	switch text := fmt.Sprintf("journal mode %s, synchronous %d", journal, synchronous); {
	case journal != "wal":
		f.Fail("durability", text, "the file is not in WAL mode: see what else opens it, and restart")
	case synchronous < full:
		f.Warn("durability", text, "the last writes may be lost with the power; open the store with SyncFull")
	default:
		f.Fine("durability", text)
	}
	if err := s.reads.QueryRowContext(ctx, texts()["ExamineIntegrity"]).Scan(&integrity); err != nil {
		if ctx.Err() != nil {
			return err
		}
		integrity = s.explain(err).Error() // too damaged to be looked through
	}
	if integrity == "ok" {
		f.Fine(nameIntegrity, "quick_check finds nothing wrong")
	} else {
		f.Fail(nameIntegrity, "quick_check: "+oneLine(integrity), "stop the workers, keep a copy of the file, and restore a backup or use `sqlite3 … .recover`")
	}
	return nil
}

func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }

// examineDisk examines the file from outside.
func (s *Store) examineDisk(f *store.Findings) {
	f.Fine("file system", filepath.Dir(s.file.path)+" is local, as far as can be seen") // Open has refused another
	info, err := os.Stat(s.file.path)
	if err != nil {
		f.Fail("file", err.Error(), "see whether the file was moved while it was in use")
		return
	}
	if text, hint := manyNames(s.file.path, info); text != "" { // since it was opened
		f.Fail("names", text, hint)
	}
	all := s.file.exposure()
	for _, one := range all {
		f.Warn("file", one.text, one.hint)
	}
	if len(all) == 0 {
		f.Fine("file", fmt.Sprintf("%s, %d MiB, mode %04o", s.file.path, info.Size()>>20, info.Mode().Perm()))
	}
	if log, err := os.Stat(s.file.path + "-wal"); err == nil && log.Size() > longestLog {
		f.Warn("write-ahead log", fmt.Sprintf("%d MiB", log.Size()>>20), "a reader has been at it for long, so that it cannot be written back: find the open transaction")
	}
	switch free, known := freeSpace(filepath.Dir(s.file.path)); {
	case !known:
	case free < leastSpace:
		f.Fail("disk", fmt.Sprintf("%d MiB free", free>>20), "make room: an enqueue fails when the disk is full")
	default:
		f.Fine("disk", fmt.Sprintf("%d MiB free", free>>20))
	}
}

// examineStranded looks for runs that are marked as running and that no worker
// executes.
func (s *Store) examineStranded(ctx context.Context, f *store.Findings) error {
	reader, err := s.read(ctx)
	if err != nil {
		return err
	}
	var stranded int64
	if err := reader.stranded.QueryRowContext(ctx, math.MaxInt64).Scan(&stranded); err != nil {
		return err
	}
	rules.FindStranded(f, stranded, "")
	return nil
}

// examineClock compares the store's time with the machine's clock.
func (s *Store) examineClock(ctx context.Context, reader *lookups, f *store.Findings) error {
	latest, err := reader.ExamineClock(ctx)
	if err != nil {
		return err
	}
	if ahead := duration(max(latest, s.clock.now()) - s.clock.machine()); ahead > aheadMost {
		advice := "nothing has to be done: the store's time continues from there, an eighth more slowly, until the clock has caught up; schedules are early until then"
		if ahead > aheadUntold {
			advice = "it is too far to continue from there: restart every process that shares the file, so that all go by the clock as it is; until it has caught up, what was due or leased waits"
		}
		f.Warn("clock", fmt.Sprintf("what was stored last was stored %v from now: the machine's clock has been set back", ahead.Round(time.Second)), advice)
	} else {
		f.Fine("clock", "nothing was stored later than now")
	}
	return nil
}

// examineWork examines the rows of the tables.
func (s *Store) examineWork(ctx context.Context, f *store.Findings) error {
	reader, err := s.read(ctx)
	if err != nil {
		return err
	}
	now := s.clock.now()
	expired, err := reader.ExamineLeases(ctx, queries.ExamineLeasesParams{Before: now - rules.LateLease.Microseconds()})
	if err != nil {
		return err
	}
	rules.FindLateLeases(f, expired)
	if err := s.examineClock(ctx, reader, f); err != nil {
		return err
	}
	paused, err := reader.ExamineQueues(ctx)
	if err != nil {
		return err
	}
	rules.FindPaused(f, paused)
	return nil
}
