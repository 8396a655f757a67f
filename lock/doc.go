// Package lock provides named locks across processes: mutual exclusion, or at most n holders
// at a time, with a fence that rises with each grant.
//
// A [Locker] acquires, waits and releases; [Guard] runs a function while it holds
// a lock. The engines implement [Store]: the databases in package store, and
// Redis in lock/redislock. Package lock/locktest is the suite that they pass.
//
// It builds on package lease, which says until when a holder may act, and on
// package heartbeat, which keeps grants alive. Begin reading at Locker.Acquire.
package lock
