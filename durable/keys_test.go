package durable_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/memory"
)

func ExampleUnique() {
	ctx := context.Background()
	client := durable.NewClient(memory.New(memory.Config{}))
	first, _ := greet.Enqueue(ctx, client, greeting{Name: "ann"}, durable.Unique("ann"))
	again, err := greet.Enqueue(ctx, client, greeting{Name: "ann"}, durable.Unique("ann"))
	fmt.Println(first.Existing, again.Existing, again.ID == first.ID, err)
	// Output: false true true <nil>
}

func ExampleReplace() {
	ctx := context.Background()
	store := memory.New(memory.Config{})
	client := durable.NewClient(store)
	first, _ := greet.Enqueue(ctx, client, greeting{Name: "ann"}, durable.Replace("the guest"), durable.After(time.Hour))
	second, _ := greet.Enqueue(ctx, client, greeting{Name: "bob"}, durable.Replace("the guest"))
	record, _ := store.Run(ctx, first.ID)
	fmt.Println(second.Existing, second.ID == first.ID, string(record.Args), *record.Key)
	// Output: true true {"name":"bob"} the guest
}

func ExampleDebounce() {
	ctx := context.Background()
	store := memory.New(memory.Config{})
	client := durable.NewClient(store)
	for _, name := range []string{"a", "ab", "abc"} { // as a person types
		_, _ = greet.Enqueue(ctx, client, greeting{Name: name}, durable.Debounce("search", time.Second, 10*time.Second))
	}
	page, _ := store.Runs(ctx, durable.Filter{})
	fmt.Println(len(page.Runs), string(page.Runs[0].Args))
	// Output: 1 {"name":"abc"}
}

func TestKeyOptions(t *testing.T) {
	t.Parallel()
	db := memory.New(memory.Config{})
	refused := func(t *testing.T, mention string, options ...durable.Option) {
		t.Helper()
		receipts, err := greet.Enqueue(t.Context(), db, greeting{}, options...)
		require.ErrorIs(t, err, durable.ErrInvalid)
		require.ErrorContains(t, err, mention)
		require.Zero(t, receipts)
	}
	t.Run("only one of them is for a run", func(t *testing.T) {
		t.Parallel()
		refused(t, "both Unique and Replace are given", durable.Unique("k"), durable.Replace("k"))
		refused(t, "both Unique and Unique are given", durable.Unique("k"), durable.Unique("l"))
	})
	t.Run("the empty key is not no key", func(t *testing.T) {
		t.Parallel()
		refused(t, "Unique: the key is empty", durable.Unique(""))
		refused(t, "Replace: the key is empty", durable.Replace(""))
	})
	t.Run("debounce goes with no other due time", func(t *testing.T) {
		t.Parallel()
		refused(t, "it does not go with at and after", durable.Debounce("k", time.Second, 0), durable.After(time.Second))
		refused(t, "it does not go with at and after", durable.At(time.Now()), durable.Debounce("k", time.Second, 0))
	})
	t.Run("the offender is named", func(t *testing.T) {
		t.Parallel()
		refused(t, `key "a\x00b"`, durable.Unique("a\x00b"))
		refused(t, "held for -1s", durable.UniqueFor("k", -time.Second))
		refused(t, "quiet 0s", durable.Debounce("k", 0, 0))
		refused(t, "at most 1s: want 0 for no bound, or 2s", durable.Debounce("k", 2*time.Second, time.Second))
	})
	t.Run("they are for one run, not for a job or a schedule", func(t *testing.T) {
		t.Parallel()
		_, err := durable.NewJob[greeting]("greet", durable.Unique("k")).Enqueue(t.Context(), db, greeting{})
		require.ErrorContains(t, err, "Unique is for one run, not for a job")
		w := durable.NewWorker(memory.New(memory.Config{}), durable.WorkerConfig{})
		durable.Register(w, greet, func(context.Context, *durable.Run[greeting]) error { return nil })
		durable.AddSchedule(w, "often", greet, greeting{}, durable.Every(time.Hour), durable.Debounce("k", time.Second, 0))
		require.ErrorContains(t, w.Faults(), "Debounce is for one run, not for a schedule")
	})
}

func TestKey_Judge(t *testing.T) {
	t.Parallel()
	run, other := durable.NewRunID(), durable.NewRunID()
	unique := store.Key{Text: "k"}
	replace := store.Key{Text: "k", Policy: store.KeyReplace}
	for _, c := range []struct {
		name   string
		key    store.Key
		holder store.KeyHolder
		want   store.KeyVerdict
	}{
		{"nobody", unique, store.KeyHolder{}, store.TakesKey},
		{"nobody, to replace", replace, store.KeyHolder{}, store.TakesKey},
		{"pending", unique, store.KeyHolder{Stored: true, Latest: other}, store.LeavesHolder},
		{"pending, to replace", replace, store.KeyHolder{Stored: true, Latest: other}, store.ReplacesHolder},
		{"running", unique, store.KeyHolder{Stored: true, Latest: other, State: durable.Running}, store.LeavesHolder},
		{"running, to replace", replace, store.KeyHolder{Stored: true, Latest: other, State: durable.Running}, store.TakesKey},
		{"ended", unique, store.KeyHolder{Stored: true, Latest: other, State: durable.Dead}, store.TakesKey},
		{"ended, held", unique, store.KeyHolder{Stored: true, Latest: other, State: durable.Succeeded, Held: true}, store.LeavesHolder},
		{"ended, held, to replace", replace, store.KeyHolder{Stored: true, Latest: other, State: durable.Succeeded, Held: true}, store.TakesKey},
		{"a repeat", replace, store.KeyHolder{Stored: true, Latest: run, State: durable.Running}, store.LeavesHolder},
		{"a repeat, late", replace, store.KeyHolder{Stored: true, Latest: run, State: durable.Succeeded}, store.LeavesHolder},
	} {
		require.Equal(t, c.want, c.key.Judge(run, c.holder), c.name)
	}
}
