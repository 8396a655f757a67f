package storetest

import (
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/durable-worker/durable-worker/store"
)

func limitChangeTests() map[string]func(*testing.T, *fixture) {
	return map[string]func(*testing.T, *fixture){
		"a declared limit is listed, and changes with the code":             declaredLimits,
		"an operator's version is in effect until the code's changes":       editedLimits,
		"a limit keeps its kind, and one that is refused stops no other":    kindStays,
		"a job says the limits of its runs":                                 limitsOfJobs,
		"a change of a limit is checked, audited, and a repeat is a no-op":  checkedChanges,
		"a limit that is raised admits what waits":                          raisedLimit,
		"a limit that is lowered admits nothing until it has drained":       loweredLimit,
		"a draining limit admits nothing, and continues when it is resumed": drainedLimit,
		"a limit that is off admits everything, and then counts again":      limitOff,
		"a limit is deleted when nothing waits and nothing is held":         deletedLimit,
		"an operator ends a permit":                                         releasedPermit,
	}
}

// changeLimit changes a limit for an operator.
func (f *fixture) changeLimit(command store.LimitCommand, limit store.Limit) {
	f.t.Helper()
	if err := f.store.ChangeLimit(f.ctx, store.LimitChange{Command: command, Limit: limit, By: "ann"}); err != nil {
		f.t.Fatalf("%s: %v", command, err)
	}
}

// limit is a limit as listed, which it must be.
func (f *fixture) limit(name string) store.LimitInfo {
	f.t.Helper()
	infos, err := f.store.ListLimits(f.ctx, store.LimitFilter{Names: []string{name}})
	if err != nil || len(infos) != 1 {
		f.t.Fatalf("ListLimits of %s: %d, %v", name, len(infos), err)
	}
	return infos[0]
}

func declaredLimits(t *testing.T, f *fixture) {
	bucket := store.Limit{Name: "GitHub", Kind: store.LimitTokenBucket, Max: 500, Period: time.Hour, Burst: 10}
	dynamic := store.Limit{Name: "fair", Kind: store.LimitDynamicWindow, Max: 20, Period: time.Hour, Buckets: 60, Least: 2, Most: 20,
		WhenFull: store.FullRetry, RetryAfter: time.Minute}
	f.declareLimits(bucket, semaphore("api", 3), dynamic)
	infos, err := f.store.ListLimits(f.ctx, store.LimitFilter{})
	if err != nil || len(infos) != 3 || infos[0].Name != "api" || infos[1].Name != "fair" || infos[2].Name != "github" {
		t.Fatalf("listed %+v (%v), want api, fair, github", infos, err)
	}
	for i, want := range []store.Limit{semaphore("api", 3), dynamic, bucket} {
		got := infos[i].Limit
		if infos[i].DeclaredAt == nil || infos[i].Edited || got.ID == 0 {
			t.Errorf("listed %+v, want it declared and not edited", infos[i])
		}
		if got.Secret == (uuid.UUID{}) {
			t.Errorf("%s has no secret", got.Name)
		}
		want.Name, want.ID, want.Secret, got.WhenFull, want.WhenFull = store.LimitName(want.Name), got.ID, got.Secret, got.Action(), want.Action()
		if got != want {
			t.Errorf("stored %+v, want %+v", got, want)
		}
	}
	id := f.limit("API").ID
	f.declareLimits(semaphore("Api", 5))
	if got := f.limit("api"); got.Max != 5 || got.ID != id || got.Edited {
		t.Errorf("declared again: %+v, want 5 places under the same number", got)
	}
	f.declareLimits(semaphore(store.QueueCap("mail"), 2))
	if infos, err := f.store.ListLimits(f.ctx, store.LimitFilter{}); err != nil || len(infos) != 3 {
		t.Errorf("listed %d (%v), want no caps", len(infos), err)
	}
	if infos, err := f.store.ListLimits(f.ctx, store.LimitFilter{Caps: true}); err != nil || len(infos) != 4 {
		t.Errorf("listed %d (%v), want the caps too", len(infos), err)
	}
	f.enqueue(newRuns(7, limited("api"))...)
	f.wantAdmitted("with a heavy one", f.firstOf(5, "api")...)
	if got := f.limit("api"); got.InUse.N != 5 || got.Waiting.N != 2 || got.NextAt != nil && got.NextAt.After(f.now()) {
		t.Errorf("in use: %+v", got)
	}
}

// firstOf are the first runs in the line of a limit's only key.
func (f *fixture) firstOf(n int, limit string) (runs []store.NewRun) {
	f.t.Helper()
	for _, w := range f.gate(limit, "").Waiters[:n] {
		runs = append(runs, store.NewRun{ID: w.Run})
	}
	return runs
}

func editedLimits(t *testing.T, f *fixture) {
	f.declareLimits(semaphore("api", 3))
	f.changeLimit(store.SetLimit, semaphore("API", 7))
	if got := f.limit("api"); got.Max != 7 || !got.Edited || got.DeclaredAt == nil {
		t.Errorf("edited: %+v, want 7 places", got)
	}
	f.declareLimits(semaphore("api", 3))
	if got := f.limit("api"); got.Max != 7 || !got.Edited {
		t.Errorf("the same code declared it again: %+v, want the operator's 7", got)
	}
	f.declareLimits(semaphore("api", 4))
	if got := f.limit("api"); got.Max != 4 || got.Edited {
		t.Errorf("other code declared it: %+v, want its 4", got)
	}
	f.changeLimit(store.DrainLimit, semaphore("api", 0))
	f.declareLimits(semaphore("api", 5))
	if got := f.limit("api"); got.Max != 5 || got.State != store.LimitDraining {
		t.Errorf("declared while it drains: %+v, want 5 places and draining", got)
	}
	f.changeLimit(store.SetLimit, semaphore("mine", 2))
	if got := f.limit("mine"); got.Max != 2 || !got.Edited || got.DeclaredAt != nil {
		t.Errorf("an operator's own: %+v", got)
	}
	run := newRun(limited("mine"))
	f.enqueue(run)
	f.wantAdmitted("of an operator's own limit", run)
}

func kindStays(t *testing.T, f *fixture) {
	f.declareLimits(semaphore("api", 3))
	rate := store.Limit{Name: "api", Kind: store.LimitFixedWindow, Max: 3, Period: time.Hour}
	err := f.store.Declare(f.ctx, store.Declaration{Worker: newWorker("w1"), Limits: []store.Limit{rate, semaphore("other", 1)}})
	var aside *store.SetAsideError
	if !errors.As(err, &aside) || len(aside.SetAside) != 1 || aside.SetAside[0].Name != "api" || !strings.Contains(err.Error(), "semaphore") {
		t.Errorf("declared as another kind: %v, want that one set aside", err)
	}
	if got := f.limit("api"); got.Kind != store.LimitSemaphore || got.Max != 3 {
		t.Errorf("the limit is %+v", got)
	}
	f.limit("other")
	if err := f.store.ChangeLimit(f.ctx, store.LimitChange{Command: store.SetLimit, Limit: rate, By: "ann"}); !errors.Is(err, store.ErrConflict) {
		t.Errorf("set to another kind: %v, want a conflict", err)
	}
}

func limitsOfJobs(t *testing.T, f *fixture) {
	use := limitUses(t, "tenant", "api*2!finished")
	job := store.JobInfo{Name: "sync", Queue: store.DefaultQueue, MaxAttempts: 3, Limits: []store.JobLimit{
		{Default: use[0], Template: "{tenant}:{region?}"}, {Default: use[1]}, {Default: limitUses(t, "user")[0], Computed: true},
	}}
	plain := store.JobInfo{Name: "plain", Queue: store.DefaultQueue, MaxAttempts: 3}
	err := f.store.Declare(f.ctx, store.Declaration{Worker: newWorker("w1"), Jobs: []store.JobInfo{job, plain}})
	if err != nil {
		t.Fatal(err)
	}
	jobs, err := f.store.Jobs(f.ctx)
	if err != nil || len(jobs) != 2 || len(jobs[0].Limits) != 0 || !reflect.DeepEqual(jobs[1], job) {
		t.Errorf("jobs %+v (%v), want %+v", jobs, err, job)
	}
}

func checkedChanges(t *testing.T, f *fixture) {
	f.declareLimits(semaphore("api", 3))
	for name, change := range map[string]store.LimitChange{
		"no actor":              {Command: store.SetLimit, Limit: semaphore("api", 3)},
		"an unknown command":    {Command: "burn", Limit: semaphore("api", 3), By: "ann"},
		"a bad name":            {Command: store.SetLimit, Limit: semaphore("a b", 3), By: "ann"},
		"a negative max":        {Command: store.SetLimit, Limit: semaphore("api", -1), By: "ann"},
		"no kind":               {Command: store.SetLimit, Limit: store.Limit{Name: "new", Max: 1}, By: "ann"},
		"a permit of no one":    {Command: store.ReleasePermit, Limit: semaphore("api", 0), By: "ann"},
		"a key that is no text": {Command: store.LiftPenalty, Limit: semaphore("api", 0), Key: "a\x00", By: "ann"},
	} {
		if err := f.store.ChangeLimit(f.ctx, change); !errors.Is(err, store.ErrInvalid) {
			t.Errorf("%s: %v, want ErrInvalid", name, err)
		}
	}
	for _, command := range []store.LimitCommand{store.DrainLimit, store.ResumeLimit, store.DisableLimit, store.DeleteLimit, store.ReleasePermit, store.LiftPenalty} {
		change := store.LimitChange{Command: command, Limit: store.Limit{Name: "nowhere"}, Owner: uuid.New(), By: "ann"}
		if err := f.store.ChangeLimit(f.ctx, change); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("%s of a limit that is not there: %v, want ErrNotFound", command, err)
		}
	}
	if _, err := f.store.Gate(f.ctx, "nowhere", ""); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("Gate of a limit that is not there: %v, want ErrNotFound", err)
	}
	for range 2 {
		f.changeLimit(store.SetLimit, semaphore("api", 9))
		f.changeLimit(store.DrainLimit, store.Limit{Name: "API"})
	}
	page, err := f.store.Changes(f.ctx, store.ChangeFilter{Limit: 10, Kind: "limit"})
	changes := page.Changes
	if err != nil || len(changes) != 2 || changes[0].Action != "drain" || changes[0].Subject != "api" || changes[1].Action != "set" || changes[1].Actor != "ann" {
		t.Errorf("audited %+v (%v), want set and drain, once each", changes, err)
	}
}

func raisedLimit(_ *testing.T, f *fixture) {
	f.declareLimits(semaphore("tenant", 1))
	a, b := newRuns(4, limited("tenant=a")), newRuns(3, limited("tenant=b"))
	f.enqueue(a...)
	f.enqueue(b...)
	claims := f.wantAdmitted("one of each key", a[0], b[0])
	f.changeLimit(store.SetLimit, semaphore("tenant", 3))
	claims = append(claims, f.wantAdmitted("raised", a[1], a[2], b[1], b[2])...)
	claims.end(success())
	f.wantAdmitted("the last", a[3])
}

func loweredLimit(_ *testing.T, f *fixture) {
	f.declareLimits(semaphore("api", 3))
	runs := newRuns(6, limited("api"))
	f.enqueue(runs...)
	var claims admittedAll
	for range 3 {
		claims = append(claims, f.admit(1))
	}
	f.changeLimit(store.SetLimit, semaphore("api", 1))
	for i := range claims {
		f.wantAdmitted("too many are executing")
		claims[i].end(success())
	}
	claims = f.wantAdmitted("one place", runs[3])
	f.changeLimit(store.SetLimit, semaphore("api", 0))
	claims.end(success())
	f.wantAdmitted("no place")
	f.changeLimit(store.SetLimit, semaphore("api", 2))
	f.wantAdmitted("raised again", runs[4], runs[5])
}

func drainedLimit(_ *testing.T, f *fixture) {
	f.declareLimits(semaphore("api", 2))
	runs := newRuns(4, limited("api"))
	f.enqueue(runs[:3]...)
	claims := f.wantAdmitted("two places", runs[0], runs[1])
	f.changeLimit(store.DrainLimit, store.Limit{Name: "api"})
	claims.end(success())
	f.enqueue(runs[3])
	f.wantAdmitted("draining")
	f.changeLimit(store.ResumeLimit, store.Limit{Name: "api"})
	f.wantAdmitted("resumed", runs[2], runs[3])
}

func limitOff(_ *testing.T, f *fixture) {
	f.declareLimits(semaphore("api", 1))
	runs := newRuns(6, limited("api"))
	f.enqueue(runs[:3]...)
	claims := f.wantAdmitted("one place", runs[0])
	f.changeLimit(store.DisableLimit, store.Limit{Name: "api"})
	claims = append(claims, f.wantAdmitted("off", runs[1], runs[2])...)
	f.enqueue(runs[3])
	claims = append(claims, f.wantAdmitted("still off", runs[3])...)
	f.changeLimit(store.ResumeLimit, store.Limit{Name: "api"})
	f.enqueue(runs[4:]...)
	f.wantGate("all are counted", "api", "", 4, 2)
	for i := range claims {
		f.wantAdmitted("too many are executing")
		claims[i].end(success())
	}
	f.wantAdmitted("one place again", runs[4])
}

func deletedLimit(t *testing.T, f *fixture) {
	f.declareLimits(semaphore("api", 1))
	f.changeLimit(store.SetLimit, semaphore("mine", 1))
	runs := newRuns(4, limited("api"))
	f.enqueue(runs[:2]...)
	gone := store.LimitChange{Command: store.DeleteLimit, Limit: store.Limit{Name: "api"}, By: "ann"}
	for i := range 2 {
		if err := f.store.ChangeLimit(f.ctx, gone); !errors.Is(err, store.ErrConflict) {
			t.Fatalf("deleted while runs wait: %v, want a conflict", err)
		}
		claims := f.wantAdmitted("it", runs[i])
		if err := f.store.ChangeLimit(f.ctx, gone); !errors.Is(err, store.ErrConflict) {
			t.Fatalf("deleted while a place is held: %v, want a conflict", err)
		}
		claims.end(success())
	}
	f.changeLimit(store.DeleteLimit, store.Limit{Name: "api"})
	f.changeLimit(store.DeleteLimit, store.Limit{Name: "api"})
	f.changeLimit(store.DeleteLimit, store.Limit{Name: "mine"})
	if infos, err := f.store.ListLimits(f.ctx, store.LimitFilter{}); err != nil || len(infos) != 0 {
		t.Errorf("listed %+v (%v) after they were deleted", infos, err)
	}
	if _, err := f.store.Gate(f.ctx, "api", ""); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("Gate of a deleted limit: %v, want ErrNotFound", err)
	}
	// Code that declares it still runs, unlimited; what no code knows is gone.
	f.declareLimits(semaphore("api", 1))
	f.enqueue(runs[2:]...)
	f.wantAdmitted("not limited any more", runs[2], runs[3])
	if _, err := f.store.Enqueue(f.ctx, newRun(limited("mine"))); !errors.Is(err, store.ErrUnknownLimit) {
		t.Errorf("enqueued with a deleted limit: %v, want it refused", err)
	}
	id := f.limitIDAfter(semaphore("mine", 2))
	if other := f.limitIDAfter(semaphore("mine", 3)); id != other {
		t.Errorf("set again it has the number %d, and had %d", other, id)
	}
}

func (f *fixture) limitIDAfter(set store.Limit) store.LimitID {
	f.t.Helper()
	f.changeLimit(store.SetLimit, set)
	return f.limit(set.Name).ID
}

func releasedPermit(t *testing.T, f *fixture) {
	f.declareLimits(semaphore("api", 2))
	runs := newRuns(4, limited("api"))
	f.enqueue(runs...)
	first := f.admit(2)
	permits := f.gate("api", "").Permits
	if len(permits) != 1 || permits[0].Places != 2 || permits[0].Owner != uuid.UUID(first.claim) || permits[0].Until != store.UntilSettled {
		t.Fatalf("permits %+v, want one of the claim", permits)
	}
	change := store.LimitChange{Command: store.ReleasePermit, Limit: store.Limit{Name: "api"}, Owner: permits[0].Owner, By: "ann"}
	for range 2 {
		if err := f.store.ChangeLimit(f.ctx, change); err != nil {
			t.Fatal(err)
		}
	}
	second := f.wantAdmitted("released", runs[2], runs[3])
	first.end(success())
	f.wantGate("what was released is not released again", "api", "", 2, 0)
	second.end(success())
	f.wantGate("at the end", "api", "", 0, 0)
}
