package storetest_test

import (
	"flag"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/memory"
	"github.com/durable-worker/durable-worker/store/storetest"
)

var rewrite = flag.Bool("rewrite", false, "write what the memory store answers into the transcripts")

// clocked is a memory store with a clock that only Advance moves.
type clocked struct {
	*memory.Store
	passed *atomic.Int64
}

func backend() storetest.Backend {
	return storetest.Backend{
		New: func(*testing.T) store.Store {
			passed, start := new(atomic.Int64), time.Now()
			clock := func() time.Time { return start.Add(time.Duration(passed.Load())) }
			return clocked{memory.New(memory.Config{Clock: clock}), passed}
		},
		Advance: func(_ *testing.T, s store.Store, d time.Duration) { s.(clocked).passed.Add(int64(d)) },
	}
}

func TestMemory(t *testing.T) {
	if *rewrite {
		rewriteTranscripts(t)
		return
	}
	storetest.TestStore(t, backend())
}

func rewriteTranscripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		played := storetest.Play(t, backend(), string(text))
		if err := os.WriteFile(file, []byte(played), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}
