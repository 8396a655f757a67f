// Package limit applies the limits of runs to other code, such as the requests of a web
// service, a script, or a loop in another library.
//
//	var GitHub = durable.NewLimit("github", durable.TokenBucket(500, time.Second, 10))
//
//	limiter := limit.New(store, GitHub, limit.Config{})
//	if err := limiter.Wait(ctx, "", 1); err != nil {
//		return err
//	}
//
// For a window or a token bucket, [Limiter.Take] and [Limiter.Wait] take starts, and
// [Limiter.Charge] records starts that have already happened. For a Mutex or Semaphore,
// [Limiter.Do] calls a function while it has a place; [Limiter.Acquire] and
// [Limiter.TryAcquire] return the place as a [Permit]. [Limiter.Penalize] stops a key for
// a time.
//
// Runs and Limiters share a key's places and starts, by the store's clock. There is no
// order between them: a Limiter does not wait in line with the runs, but takes what is free
// when it asks. Use runs where the order matters.
package limit
