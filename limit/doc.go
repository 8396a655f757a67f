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
// For a limit that bounds starts, [Limiter.Take] and [Limiter.Wait] take starts, and
// [Limiter.Charge] records starts that have already happened. For a Mutex or Semaphore,
// [Limiter.Do] runs a function while it has a place; [Limiter.Acquire] and
// [Limiter.TryAcquire] return the place as a [Permit]. [Limiter.Penalize] slows a key down.
//
// Runs and Limiters share a key's places and starts, on the store's clock. No order is
// promised between them: a Limiter does not queue with the runs that wait, and takes what is
// free when it asks. Use runs where the order matters.
package limit
