// Package durable runs background jobs that survive crashes, on the database
// you already have.
//
// A Job is a named kind of work. Enqueue stores a Run of it. Workers, any
// number of identical processes, claim due runs under a lease, execute their
// handlers and settle the outcome. If a worker dies, its lease expires and others
// take over its runs.
//
//	type WelcomeArgs struct{ UserID int64 }
//
//	var Welcome = durable.NewJob[WelcomeArgs]("welcome", durable.MaxAttempts(5), durable.Timeout(time.Minute))
//
//	// in the code that enqueues
//	receipt, err := Welcome.Enqueue(ctx, durable.NewClient(store), WelcomeArgs{UserID: 42})
//
//	// in the code that works
//	w := durable.NewWorker(store, durable.WorkerConfig{})
//	durable.Register(w, Welcome, func(ctx context.Context, run *durable.Run[WelcomeArgs]) error { … })
//	err = w.Run(ctx)
//
// Call store.Migrate(ctx) first, or run `migrate up`: Open does not create the schema.
//
// # What a handler must know
//
//  1. It may be called more than once for one run: execution is at least once.
//     Use Run.IdempotencyKey for services that recognise a repeat, and Run.Fence
//     for resources that can refuse a late writer.
//  2. It must return when its context ends. The context ends when the lease is
//     lost (lease.ErrLost), when the attempt has taken too long (ErrTimeout), when
//     an operator has requested the run's cancellation (ErrCancelled), and when the
//     worker stops and its drain time is over (ErrDraining). A handler that ignores
//     this is abandoned: it cannot be killed, and its run may begin elsewhere.
//  3. What it returns decides the run's outcome: nil is success, an error is
//     retried by policy; return Permanent, RetryAfter, Snooze or Cancel for another
//     outcome. A panic and runtime.Goexit are failed attempts.
//
// # What is promised
//
// A run that Enqueue has acknowledged ends as succeeded, dead or cancelled, once;
// a claim that is no longer current changes nothing. What is not promised:
// exactly-once effects outside the store, and any order between runs: even
// priority is best effort. The guarantees page of the documentation states each
// promise with its assumption.
//
// # Reading the code
//
// Package store is the contract with the engines (packages postgres, sqlite and memory);
// storetest.TestStore is the contract in executable form. A run's path is: Job.Enqueue,
// Worker.Run, claimer.ask, execution.perform, settler.settle. The decisions of the protocol
// are pure state machines in internal/protocol, and the policy of what to claim is in
// internal/claimplan.
package durable
