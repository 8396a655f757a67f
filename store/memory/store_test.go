package memory_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/memory"
	"github.com/durable-worker/durable-worker/store/storetest"
)

// shifted is a store whose clock runs, and jumps ahead when the test says so.
type shifted struct {
	*memory.Store
	ahead *atomic.Int64
}

func TestContract(t *testing.T) {
	storetest.TestStore(t, storetest.Backend{
		New: func(*testing.T) store.Store {
			ahead := new(atomic.Int64)
			clock := func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
			return shifted{memory.New(memory.Config{Clock: clock}), ahead}
		},
		Advance: func(_ *testing.T, s store.Store, d time.Duration) { s.(shifted).ahead.Add(int64(d)) },
		Begin: func(_ *testing.T, s store.Store) storetest.Transaction {
			tx := s.(shifted).Begin()
			return storetest.Transaction{Tx: tx, Commit: tx.Commit, Rollback: tx.Rollback}
		},
	})
}

var mail = durable.NewJob[string]("mail")

func claimAll(t testing.TB, s store.Store, duration time.Duration, limit int) (lease.ClaimID, []store.ClaimedRun) {
	t.Helper()
	request := store.ClaimRequest{
		Claim: lease.NewClaimID(), Worker: store.WorkerID{Name: "w1"}, Duration: duration,
		Steps: []store.Step{{Lane: 1, Take: limit}}, Limit: limit,
	}
	claimed, err := s.Claim(t.Context(), request)
	if err != nil {
		t.Fatal(err)
	}
	return request.Claim, claimed
}

func TestTimeNeverGoesBack(t *testing.T) {
	now := time.Date(2030, 1, 1, 0, 0, 0, 1999, time.FixedZone("east", 3600))
	s := memory.New(memory.Config{Clock: func() time.Time { return now }})
	read := func() time.Time {
		done, err := s.Reclaim(t.Context(), store.ReclaimRequest{})
		if err != nil {
			t.Fatal(err)
		}
		return done.Now
	}
	if want := time.Date(2029, 12, 31, 23, 0, 0, 1000, time.UTC); read() != want {
		t.Errorf("now is %v, want %v", read(), want)
	}
	before := read()
	now = now.Add(-time.Hour)
	if read() != before {
		t.Errorf("now is %v, and was %v", read(), before)
	}
	now = now.Add(2 * time.Hour)
	if want := before.Add(time.Hour); read() != want {
		t.Errorf("now is %v, want %v", read(), want)
	}
}

func TestInsideBubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New(memory.Config{})
		ctx, cancel := context.WithCancel(t.Context())
		wakes, others := 0, 0
		ended := make(chan error)
		count := func(to *int) func(store.Signal) {
			return func(signal store.Signal) {
				if signal.Kind == store.RunsDue {
					*to++
				}
			}
		}
		go func() { ended <- s.Listen(ctx, count(&wakes)) }()
		go func() { ended <- s.Listen(ctx, count(&others)) }()
		synctest.Wait()
		if _, err := mail.Enqueue(ctx, s, "now"); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if wakes != 1 {
			t.Errorf("woken %d times, want once", wakes)
		}
		claimAll(t, s, 30*time.Second, 10)
		<-time.After(30 * time.Second) // of the bubble: takes no time
		done, err := s.Reclaim(ctx, store.ReclaimRequest{MaxCrashes: 4, Limit: 10})
		if err != nil || len(done.Runs) != 1 {
			t.Errorf("reclaimed %+v, %v, want one run", done, err)
		}
		synctest.Wait()
		if wakes != 2 || others != 2 {
			t.Errorf("woken %d and %d times, want twice", wakes, others)
		}
		cancel()
		for range 2 {
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
	})
}

func TestReadyFromTheStart(t *testing.T) {
	s := memory.New(memory.Config{})
	defer s.Close()
	if applied, err := s.Migrate(t.Context()); applied != 0 || err != nil {
		t.Errorf("Migrate: %d, %v", applied, err)
	}
	if have, want, least, err := s.Schema(t.Context()); have != want || have < least || err != nil {
		t.Errorf("Schema: have %d, want %d, at least %d, %v", have, want, least, err)
	}
}

func TestEndedContextIsRefused(t *testing.T) {
	s := memory.New(memory.Config{})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := mail.Enqueue(ctx, s, "never"); err == nil {
		t.Error("a run was enqueued under a context that had ended")
	}
	if counts, err := s.Counts(t.Context()); err != nil || counts[store.Pending].N != 0 {
		t.Errorf("counts %v, %v", counts, err)
	}
}

func TestCrashCannotBeSettled(t *testing.T) {
	s := memory.New(memory.Config{})
	settled := []store.Settled{{ID: store.NewRunID(), Outcome: store.Outcome{Kind: store.Crash}}}
	if _, err := s.Settle(t.Context(), []store.Settlement{{Claim: lease.NewClaimID(), Runs: settled}}); err == nil {
		t.Error("a worker said that it had crashed, and was believed")
	}
}

func Example() {
	ctx := context.Background()
	store := memory.New(memory.Config{})
	receipt, _ := mail.Enqueue(ctx, store, "hello")
	record, _ := store.Run(ctx, receipt.ID)
	fmt.Println(record.Job, record.State, string(record.Args))
	// Output: mail pending "hello"
}

// BenchmarkClaimAndSettle is the path of a run through the store, in batches
// of a hundred; one operation is one run.
func BenchmarkClaimAndSettle(b *testing.B) {
	const batch = 100
	s := memory.New(memory.Config{})
	runs := make([]store.NewRun, batch)
	enqueue := func() {
		for i := range runs {
			runs[i] = mail.New("hello")
		}
		if _, err := s.Enqueue(b.Context(), runs...); err != nil {
			b.Fatal(err)
		}
	}
	for range b.N/batch + 1 {
		enqueue()
	}
	b.ResetTimer()
	for n := 0; n < b.N; n += batch {
		claim, claimed := claimAll(b, s, time.Minute, batch)
		settlement := store.Settlement{Claim: claim, Last: true}
		for _, run := range claimed {
			settlement.Runs = append(settlement.Runs, store.Settled{ID: run.ID, Outcome: store.Outcome{Kind: store.Success}})
		}
		if _, err := s.Settle(b.Context(), []store.Settlement{settlement}); err != nil {
			b.Fatal(err)
		}
	}
}
