// Package limit puts code outside of runs under the same limits as runs: the requests
// of a web service, a script, a loop of another library.
//
//	var GitHub = durable.NewLimit("github", durable.TokenBucket(500, time.Second, 10))
//
//	limiter := limit.New(store, GitHub, limit.Config{})
//	if err := limiter.Wait(ctx, "", 1); err != nil {
//		return err
//	}
//
// Of a limit that bounds starts, [Limiter.Take] and [Limiter.Wait] take some, and
// [Limiter.Charge] records some that have happened already. Of a Mutex or Semaphore,
// [Limiter.Do] executes a function while it has a place; [Limiter.Acquire] and
// [Limiter.TryAcquire] hand the place out as a [Permit]. [Limiter.Penalize] slows a
// key down.
//
// Runs and Limiters share what a key has, on the store's clock. No order is promised
// between them: a Limiter does not stand in the line of the runs that wait, and takes
// what is free when it asks. Use runs where the order counts.
package limit
