package durable_test

import (
	"context"
	"fmt"
	"hash/fnv"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/store/memory"
)

// databases are several stores behind one client. A key always names the same
// one: the one with the highest hash, so that one database more takes over only
// its own part of the keys.
type databases map[string]durable.Store

func (d databases) of(key string) durable.Store {
	var chosen durable.Store
	var most uint64
	for name, store := range d {
		h := fnv.New64a()
		_, _ = h.Write([]byte(key + "\x00" + name))
		sum := h.Sum64()
		sum = (sum ^ sum>>33) * 0xff51afd7ed558ccd // FNV alone leaves the last byte's mark
		if sum ^= sum >> 33; chosen == nil || sum > most {
			chosen, most = store, sum
		}
	}
	return chosen
}

func (d databases) enqueue(ctx context.Context, key string, runs ...durable.NewRun) ([]durable.Receipt, error) {
	return durable.NewClient(d.of(key)).Enqueue(ctx, runs...)
}

// Several databases share the runs by a hash of the tenant. Each has workers of
// its own; unique keys and named locks hold within one database, so what must be
// unique together needs the same key here.
func Example_severalDatabases() {
	all := databases{"a": memory.New(memory.Config{}), "b": memory.New(memory.Config{}), "c": memory.New(memory.Config{})}
	ctx := context.Background()
	for i := range 300 {
		tenant := fmt.Sprintf("tenant-%d", i)
		if _, err := all.enqueue(ctx, tenant, greet.New(greeting{Name: tenant}, durable.Unique("welcome-"+tenant))); err != nil {
			fmt.Println(err)
		}
	}
	for _, name := range []string{"a", "b", "c"} {
		counts, _ := all[name].Counts(ctx)
		fmt.Println(name, "has a fair part:", counts[durable.Pending].N > 70 && counts[durable.Pending].N < 130)
	}
	// Output:
	// a has a fair part: true
	// b has a fair part: true
	// c has a fair part: true
}
