package storetest

import (
	"hash/fnv"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/durable-worker/durable-worker/store"
)

// Backend is how the suite gets stores of one engine.
type Backend struct {
	// New returns an empty, migrated store that shares nothing with any other.
	// It closes the store by t.Cleanup. It is called from parallel tests.
	New func(t *testing.T) store.Store
	// Advance makes d pass on the clock of a store that New returned: by
	// moving an injected clock ahead, or by moving every stored time back. No
	// other call of that store is under way. In between, the store's clock
	// may run by itself or stand still.
	Advance func(t *testing.T, s store.Store, d time.Duration)
	// Deaf says that Listen gets no signals, as behind a pooler that gives each
	// transaction another connection. What is promised without wake-ups is
	// tested all the same.
	Deaf bool
	// Begin begins a transaction of a user of a store that New returned. The
	// test commits it or rolls it back. Nil: the engine has no transactions.
	Begin func(t *testing.T, s store.Store) Transaction
	// Groups are the parts of the suite to run, such as "claim", for one more
	// way to run an engine that passes all of it otherwise. None: all.
	Groups []string
	// Share runs one test in so many of each group, always the same ones, for one more
	// way to run an engine where a difference would show in many of them. Zero: all.
	Share uint32
}

// runs reports whether the test is one of those that Share leaves.
func (b Backend) runs(sentence string) bool {
	sum := fnv.New32a()
	_, _ = sum.Write([]byte(sentence))
	return b.Share == 0 || sum.Sum32()%b.Share == 0
}

// TestStore runs the whole contract suite against a backend.
func TestStore(t *testing.T, backend Backend) {
	groups := map[string]map[string]func(*testing.T, *fixture){
		"enqueue":    enqueueTests(),
		"bounds":     boundTests(),
		"extremes":   extremeTests(),
		"claim":      claimTests(),
		"renew":      renewTests(),
		"settle":     settleTests(),
		"keys":       keyTests(),
		"races":      raceTests(),
		"inspect":    inspectTests(),
		"counts":     countTests(),
		"audit":      auditTests(),
		"operate":    operateTests(),
		"queues":     queueTests(),
		"hostile":    hostileTests(),
		"schedules":  scheduleTests(),
		"timetable":  timetableTests(),
		"occurrence": occurrenceTests(),
		"recurring":  recurringTests(),
		"listen":     listenTests(),
		"progress":   progressTests(),
		"trace":      traceTests(),
		"under":      underTests(),
		"sweep":      sweepTests(),
		"stranded":   strandedTests(),
		"rules":      ruleTests(),
		"together":   togetherTests(),
		"limits":     limitTests(),
		"presence":   presenceTests(),
		"explain":    explainTests(),
		"problems":   problemTests(),
		"steps":      stepTests(),
		"inputs":     inputTests(),
		"links":      linkTests(),
		"batches":    batchTests(),
	}
	if backend.Deaf {
		delete(groups, "listen")
	}
	if backend.Begin != nil {
		groups["transaction"] = allTxTests()
	}
	if len(backend.Groups) == 0 || slices.Contains(backend.Groups, "transcripts") {
		t.Run("transcripts", func(t *testing.T) { testTranscripts(t, backend) })
	}
	for _, name := range backend.Groups {
		if groups[name] == nil && name != "transcripts" {
			t.Fatalf("the suite has no group %q", name)
		}
	}
	maps.DeleteFunc(groups, func(name string, _ map[string]func(*testing.T, *fixture)) bool {
		return len(backend.Groups) > 0 && !slices.Contains(backend.Groups, name)
	})
	run(t, backend, groups)
}

// TestTx runs the part of the suite that is about transactions of a store's
// user. TestStore does that too; this is for a further driver of the same
// engine.
func TestTx(t *testing.T, backend Backend) {
	run(t, backend, map[string]map[string]func(*testing.T, *fixture){"transaction": allTxTests()})
}

func run(t *testing.T, backend Backend, groups map[string]map[string]func(*testing.T, *fixture)) {
	t.Helper()
	for group, tests := range groups {
		t.Run(group, func(t *testing.T) {
			t.Parallel()
			for sentence, test := range tests {
				if !backend.runs(sentence) {
					continue
				}
				t.Run(sentence, func(t *testing.T) {
					t.Parallel()
					test(t, newFixture(t, backend))
				})
			}
		})
	}
}
