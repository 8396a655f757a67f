package storetest

import (
	"errors"
	"testing"
	"time"

	"github.com/durable-worker/durable-worker/store"
)

// What a list of a limit's keys promises: who reads it sees which key floods the limit.
func limitKeyTests() map[string]func(*testing.T, *fixture) {
	return map[string]func(*testing.T, *fixture){
		"the keys of a limit are listed, that with most waiting runs first": listedKeys,
		"runs with several limits are listed under their keys":              listedSets,
		"a key in use and a penalized one are listed without waiting runs":  listedUse,
		"the number of keys that are listed is checked":                     checkedKeys,
	}
}

// keys lists the first keys of a limit.
func (f *fixture) keys(limit string, most int) store.LimitKeys {
	f.t.Helper()
	list, err := f.store.LimitKeys(f.ctx, limit, most)
	if err != nil || list.Limit.Name != store.LimitName(limit) {
		f.t.Fatalf("LimitKeys of %s: %+v, %v", limit, list, err)
	}
	return list
}

// wantKeys checks for which keys how many runs wait.
func (f *fixture) wantKeys(why string, list store.LimitKeys, want map[string]int64) {
	f.t.Helper()
	if len(list.Keys) != len(want) {
		f.t.Errorf("%s: listed %+v, want %v", why, list.Keys, want)
	}
	last := int64(1 << 40)
	for _, key := range list.Keys {
		n, known := want[key.Key]
		if !known || key.Waiting.N != n || key.Waiting.AtLeast || key.Waiting.Estimated || key.Unnamed {
			f.t.Errorf("%s: listed %+v, want %d waiting", why, key, n)
		}
		if n > last {
			f.t.Errorf("%s: %s with %d after one with %d", why, key.Key, n, last)
		}
		last = n
		if (key.OldestDue == nil) != (n == 0) {
			f.t.Errorf("%s: %s has been waiting since %v", why, key.Key, key.OldestDue)
		}
	}
}

func listedKeys(t *testing.T, f *fixture) {
	f.declareLimits(semaphore("tenant", 1), semaphore("api", 1))
	if list := f.keys("tenant", 20); len(list.Keys) != 0 || list.Known.N != 0 {
		t.Errorf("nothing waits: listed %+v", list)
	}
	f.enqueue(newRuns(5, limited("tenant=Acme"))...)
	f.advance(time.Minute)
	f.enqueue(append(newRuns(3, limited("tenant=globex")), newRuns(4, limited("api"))...)...)
	f.enqueue(newRun(limited("tenant=acme")), newRun(limited("tenant")))
	list := f.keys("Tenant", 20)
	f.wantKeys("all", list, map[string]int64{"Acme": 6, "globex": 3, "": 1})
	if list.Known.N != 3 || list.Known.AtLeast || list.Partial {
		t.Errorf("known are %+v, want 3", list.Known)
	}
	if first, second := list.Keys[0].OldestDue, list.Keys[1].OldestDue; !first.Before(*second) {
		t.Errorf("the first is due since %v, the second since %v", first, second)
	}
	short := f.keys("tenant", 1)
	f.wantKeys("the first", short, map[string]int64{"Acme": 6})
	if short.Known.N != 3 {
		t.Errorf("known are %+v, want 3", short.Known)
	}
	f.wantKeys("of the other", f.keys("api", 20), map[string]int64{"": 4})
}

func listedSets(t *testing.T, f *fixture) {
	f.declareLimits(semaphore("tenant", 1), semaphore("api", 1))
	f.enqueue(newRuns(5, limited("tenant=acme", "api"))...)
	f.enqueue(newRuns(2, limited("api", "tenant=globex"))...)
	f.wantKeys("before a claim", f.keys("tenant", 20), map[string]int64{"acme": 5, "globex": 2})
	held := f.admit(10)
	if len(held.runs) != 1 {
		t.Fatalf("%d runs were admitted, want 1: api has one place", len(held.runs))
	}
	waiting := int64(0)
	for _, key := range f.keys("tenant", 20).Keys {
		if waiting += key.Waiting.N; key.Key != "acme" && key.Key != "globex" {
			t.Errorf("listed %+v", key)
		}
	}
	if waiting != 6 {
		t.Errorf("%d runs wait, want 6", waiting)
	}
	if keys := f.keys("api", 20).Keys; len(keys) != 1 || keys[0].Key != "" || keys[0].Unnamed || keys[0].InUse != 1 {
		t.Errorf("the keys of api are %+v, want the empty one", keys)
	}
}

func listedUse(t *testing.T, f *fixture) {
	f.declareLimits(semaphore("tenant", 2))
	f.enqueue(newRuns(2, limited("tenant=acme"))...)
	f.wantAdmitted("two places", f.runsOf("tenant", "acme")...)
	f.penalize("tenant", "globex", time.Hour)
	list := f.keys("tenant", 20)
	if len(list.Keys) != 2 || list.Known.N != 2 {
		t.Fatalf("listed %+v, want two keys", list)
	}
	used, penalized := list.Keys[0], list.Keys[1]
	if used.Key != "acme" || used.InUse != 2 || used.Waiting.N != 0 || used.NotBefore != nil {
		t.Errorf("in use: %+v", used)
	}
	if named := penalized.Key == "globex"; named == penalized.Unnamed || penalized.NotBefore == nil {
		t.Errorf("penalized: %+v", penalized)
	}
	f.advance(2 * time.Hour)
	if list := f.keys("tenant", 20); len(list.Keys) != 1 {
		t.Errorf("the penalty is over: listed %+v", list.Keys)
	}
}

// runsOf are the runs that wait for a key.
func (f *fixture) runsOf(limit, key string) (runs []store.NewRun) {
	f.t.Helper()
	for _, w := range f.gate(limit, key).Waiters {
		runs = append(runs, store.NewRun{ID: w.Run})
	}
	return runs
}

func checkedKeys(t *testing.T, f *fixture) {
	f.declareLimits(semaphore("tenant", 1))
	for _, most := range []int{0, -1, store.MaxKeysListed + 1} {
		if _, err := f.store.LimitKeys(f.ctx, "tenant", most); !errors.Is(err, store.ErrInvalid) {
			t.Errorf("%d keys answered %v, want ErrInvalid", most, err)
		}
	}
	if _, err := f.store.LimitKeys(f.ctx, "nosuch", 20); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("a limit that is not there answered %v, want ErrNotFound", err)
	}
}
