// Command lock starts three "hosts" that all want to write the nightly report:
// one does, and the others skip it. Then it shows what a lock cannot do alone: a
// holder that stalls past its time is refused by the resource, which checks the
// fence. The locks are kept in Redis when a URL is given, else in a SQLite file.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"log/slog"
	"os"
	"path/filepath"
	"sync"

	"github.com/durable-worker/durable-worker/heartbeat"
	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/lock"
	"github.com/durable-worker/durable-worker/lock/redislock"
	"github.com/durable-worker/durable-worker/store/sqlite"
)

func main() {
	redis := flag.String("redis", "", "redis:// URL; empty: a SQLite file")
	path := flag.String("db", filepath.Join(os.TempDir(), "durable-lock.db"), "database file")
	flag.Parse()
	if err := run(context.Background(), *redis, *path, os.Stdout); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, redis, path string, out io.Writer) error {
	var locks lock.Locks
	if redis != "" {
		opened, err := redislock.Open(ctx, redis, redislock.Config{})
		if err != nil {
			return err
		}
		defer func() { _ = opened.Close() }()
		locks = opened
	} else {
		store, err := sqlite.Open(ctx, path, sqlite.Config{})
		if err != nil {
			return err
		}
		defer store.Close()
		if _, err := store.Migrate(ctx); err != nil {
			return err
		}
		locks = store.Locks()
	}
	if err := report(ctx, locks, out); err != nil {
		return err
	}
	return zombie(ctx, locks, out)
}

// report is run by every host; one of them does the work.
func report(ctx context.Context, locks lock.Locks, out io.Writer) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	written, skipped, errs := 0, 0, make([]error, 3)
	var mu sync.Mutex
	var others, all, keepers sync.WaitGroup
	others.Add(2)
	lockers := make([]*lock.Locker, len(errs))
	for i := range errs {
		locker := lock.NewLocker(locks, lock.LockerConfig{Owner: fmt.Sprintf("host-%d", i)})
		lockers[i] = locker
		keeper := heartbeat.New(locker, heartbeat.Config{
			Terms: lease.Terms{}.WithDefaults(), Elapsed: lease.Elapsed, Random: func() float64 { return 0.5 }, Logger: slog.Default(),
		})
		keepers.Go(func() { keeper.Run(ctx) })
		all.Go(func() {
			errs[i] = lock.Guard(ctx, keeper, locker, "report", lock.Terms{}, func(context.Context, lock.Grant) error {
				others.Wait() // longer than the others need to find the lock held
				mu.Lock()
				defer mu.Unlock()
				written++
				return nil
			})
			if errors.Is(errs[i], lock.ErrHeld) { // not an error: another process writes it
				mu.Lock()
				skipped++
				mu.Unlock()
				errs[i] = nil
				others.Done()
			}
		})
	}
	all.Wait()
	stop()
	keepers.Wait()
	for _, locker := range lockers {
		locker.Close()
	}
	fmt.Fprintf(out, "three hosts: %d wrote the report, %d skipped it\n", written, skipped)
	return errors.Join(errs...)
}

// zombie is a holder that is forced out and does not notice.
func zombie(ctx context.Context, locks lock.Locks, out io.Writer) error {
	var largest lease.Fence // what the resource has seen
	write := func(who string, fence lease.Fence) {
		accepted := fence >= largest
		largest = max(largest, fence)
		fmt.Fprintf(out, "%s writes: accepted %v\n", who, accepted)
	}
	locker := lock.NewLocker(locks, lock.LockerConfig{})
	defer locker.Close()
	first, err := locker.TryAcquire(ctx, "file", lock.Terms{})
	_, err2 := locks.ForceRelease(ctx, lock.Force{Name: "file", By: "operator", Reason: "it stalls"})
	second, err3 := locker.TryAcquire(ctx, "file", lock.Terms{})
	if err := errors.Join(err, err2, err3); err != nil {
		return err
	}
	write("second holder", second.Fence)
	write("first holder, late", first.Fence)
	return locker.Release(ctx, second)
}
