// Package redislock keeps named locks in Redis, version 6 or later.
//
// A lock on one Redis is for efficiency: it keeps two from doing the same work.
// A failover that loses the last writes, or a FLUSHALL, loses locks, and two may
// then hold one for as long as the first still believes in it. The fence continues
// to rise through both, as long as the server's clock does not go back, so a
// resource that checks it stays safe. Where correctness depends on the lock alone,
// keep it in the database.
//
// Everything is decided by the server's clock, in scripts that compare and act
// in one step. The keys of a lock are, with the default prefix,
//
//	durable:lock:{name}         its book: fence, and for each slot who holds it
//	durable:lock:{name}:0       slot 0: the claim, with the time it has to live
//	durable:lock:{name}:forced  its forced releases
//	durable:lock:{name}:waits   which processes wait for it
//	durable:lock:{name}:refused:CLAIM  a claim that was given back before it came, for an hour
//
// with the characters %, { and } of a name written %25, %7B and %7D. The braces
// put all keys of a lock on one node of a Redis Cluster. They can be read with
// redis-cli: GET, PTTL and HGETALL. A release is published on the channel
// durable:lock:freed while a process waits; a user who may not use the channel
// finds it by polling.
//
// A server that may evict keys is refused: a lock that is evicted is held by two.
package redislock
