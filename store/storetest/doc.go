// Package storetest is the contract of store.Store in executable form, for the
// authors of stores. A store's own test is its construction and one call:
//
//	func TestContract(t *testing.T) {
//		storetest.TestStore(t, storetest.Backend{New: open, Advance: advance})
//	}
//
// The suite has two parts. The transcripts in testdata are the specification a newcomer reads
// first: commands, a line of dashes, what the store answers, and prose between them. Every
// store must answer with the very same text. Go tests cover what a transcript cannot say
// well: races, large batches, exact bytes, the bounds of what may be stored.
//
// The suite needs nothing but package testing and never sleeps: it makes time
// pass through Backend.Advance. Its subtests run in parallel, each with a
// store of its own.
//
// # How to read a transcript
//
// Lines that begin with # are prose. A block is one or more commands, a line
// of four dashes, and their output. Runs, claims, workers and schedules have
// names that the transcript gives them. A millisecond passes between two
// commands, and times are relative to now, rounded up to five seconds.
//
//	enqueue r1 r2 [job=mail] [queue=default] [priority=0] [attempts=3] [after=5s]
//	        [expires=10s] [timeout=1m] [on-crash=dead] [tags=a,b]
//	claim c1 w1 [limit=10] [lease=30s] [isolated] [alone] [step=lane,from=r2,skip=1,take=5]...
//	settle c1 r1 success [last]           one run; or one on each indented line that follows
//	       outcomes: success [result=J], failure [after=5s] [error=E], dead [error=E],
//	       cancelled [error=E], snoozed [after=5s], handed-back
//	renew c1 c2 [lease=30s]
//	reclaim [max=4] [limit=10] [horizon=5s]
//	advance 31s
//	heads [queues=a,b] [jobs=a,b]
//	run r1
//	list [states=a,b] [jobs=a,b] [queues=a,b] [limit=2] [before=r3]
//	counts
//	declare nightly [hash=h1] [job=mail] [every=1h]
//	materialize [limit=10]                with a line for each decision:
//	       nightly [occurrences=key:run,...] [next=10s] [fault=F]; no line: next=1h
//
// A lane is written queue/job/priority; one with a leading minus is the line
// of the lane's isolated runs. A claim without steps takes from every lane, by
// priority; with the word isolated, from the lines of isolated runs.
package storetest
