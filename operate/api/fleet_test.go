package api_test

import (
	"context"
	"errors"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/lock"
	"github.com/durable-worker/durable-worker/operate"
	"github.com/durable-worker/durable-worker/store"
)

func TestQueuesArePausedAndResumed(t *testing.T) {
	onEach(t, func(t *testing.T, b *bench) {
		require.Equal(t, "not_found", b.want(404, "POST", "/queues/pause", `{"name":"mial"}`)["code"])
		b.want(200, "POST", "/queues/pause", `{"name":"a/b","unused":true}`)
		queues := b.want(200, "GET", "/queues?name="+url.QueryEscape("a/b"), "")["queues"].([]any)
		require.Len(t, queues, 1)
		require.Equal(t, true, queues[0].(map[string]any)["paused"])
		require.Equal(t, false, b.want(200, "POST", "/queues/resume", `{"name":"a/b"}`)["paused"])
		b.want(400, "POST", "/queues/pause", `{"name":"a b","unused":true}`)
		require.EqualValues(t, 3, b.want(200, "POST", "/queues/set", `{"name":"a/b","max_concurrent":3}`)["max_concurrent"])
		queues = b.want(200, "GET", "/queues?name="+url.QueryEscape("a/b"), "")["queues"].([]any)
		require.EqualValues(t, 3, queues[0].(map[string]any)["max_concurrent"])
		require.Nil(t, b.want(200, "POST", "/queues/set", `{"name":"a/b","max_concurrent":0}`)["max_concurrent"])
		require.Equal(t, "not_found", b.want(404, "POST", "/queues/set", `{"name":"mial","max_concurrent":1}`)["code"])
		b.want(200, "POST", "/queues/set", `{"name":"new","max_concurrent":1,"unused":true}`)
		b.want(400, "POST", "/queues/set", `{"name":"new"}`)
		require.Len(t, b.want(200, "GET", "/audit?kind=queue&limit=1", "")["changes"], 1)
		require.NotNil(t, b.want(200, "GET", "/audit?kind=queue&limit=1", "")["next"])
	})
}

func TestSchedulesAreCreatedChangedAndRun(t *testing.T) {
	onEach(t, func(t *testing.T, b *bench) {
		const at = "/schedules?name=nightly%2Freport"
		w := b.send("PUT", at, `{"job":"report","rule":{"cron":"0 3 * * *","zone":"Europe/Berlin"},"args":{"to":"ann"},"tags":["x"]}`)
		require.Equal(t, 201, w.Code, w.Body)
		require.Equal(t, `"1"`, w.Header().Get("Etag"))
		require.Equal(t, "conflict", b.want(409, "PUT", at, `{"job":"report","rule":{"every":"1h"}}`)["code"], "it is there already")
		w = b.send("PUT", at, `{"job":"report","rule":{"every":"1h"},"plan":{"overlap":"wait","blackouts":[{"days":"sat,sun"}]}}`, "If-Match", `"1"`)
		require.Equal(t, 200, w.Code, w.Body)
		etag := w.Header().Get("Etag")
		require.NotEqual(t, `"1"`, etag)
		require.Equal(t, "conflict", b.want(412, "PUT", at, `{"job":"report","rule":{"every":"2h"}}`, "If-Match", `"1"`)["code"])
		for _, match := range []string{"1", `W/"1"`, "*", `"x"`, `"0"`} {
			b.want(400, "PUT", at, `{"job":"report","rule":{"every":"2h"}}`, "If-Match", match)
		}
		require.Equal(t, "unknown_job", b.want(422, "PUT", at+"2", `{"job":"rport","rule":{"every":"2h"}}`)["code"])
		b.want(400, "PUT", at+"2", `{"job":"report","rule":{"cron":"never"}}`)
		b.want(400, "PUT", at+"2", `{"job":"report","rule":{"once":"2001-01-01T00:00:00Z"}}`)

		one := b.want(200, "POST", "/schedules/pause", `{"name":"nightly/report"}`)["schedules"].([]any)[0].(map[string]any)
		require.Equal(t, true, one["paused"])
		b.want(200, "POST", "/schedules/resume", `{"name":"nightly/report"}`)
		made := b.want(202, "POST", "/schedules/run-now", `{"name":"nightly/report"}`)["id"].(string)
		require.Equal(t, "nightly/report", b.want(200, "GET", "/runs/"+made, "")["schedule"])
		b.want(409, "POST", "/schedules/run-now", `{"name":"nightly/report"}`)
		b.want(202, "POST", "/schedules/run-now", `{"name":"nightly/report","overlap":"allow"}`)
		require.Len(t, b.want(200, "GET", "/schedules/preview?name=nightly%2Freport&next=3", "")["next"], 3)
		require.Len(t, b.want(200, "POST", "/schedules/preview", `{"rule":{"cron":"*/5 * * * *"},"next":4}`)["next"], 4)
		b.want(400, "POST", "/schedules/preview", `{"rule":{"cron":"never"}}`)
		b.want(400, "POST", "/schedules/preview", `{"rule":{"cron":"@daily"},"next":101}`)
		require.Len(t, b.want(200, "GET", "/schedules", "")["schedules"], 1)
		require.Equal(t, true, b.want(200, "DELETE", at, "")["deleted"])
		for _, path := range []string{"pause", "resume", "run-now"} {
			require.Equal(t, "not_found", b.want(404, "POST", "/schedules/"+path, `{"name":"nightly/report"}`)["code"])
		}
		b.want(404, "DELETE", at, "")
		b.want(404, "GET", at, "")
		b.want(400, "DELETE", "/schedules", "")
	})
}

func TestASchedulesRunsHaveTheLimitsOfTheirJob(t *testing.T) {
	onEach(t, func(t *testing.T, b *bench) {
		b.want(200, "PATCH", "/limits?name=tenant", `{"kind":"semaphore","max":1}`)
		tenant := durable.Limited(durable.NewLimit("tenant", durable.Mutex()), durable.KeyOf("{tenant}"))
		b.declare(durable.NewJob[map[string]any]("call", tenant).Info())
		made := func(body string) any {
			b.want(201, "PUT", "/schedules?name=n", body)
			id := b.want(202, "POST", "/schedules/run-now", `{"name":"n"}`)["id"].(string)
			b.want(200, "DELETE", "/schedules?name=n", "")
			return b.want(200, "GET", "/runs/"+id, "")["limits"]
		}
		require.Equal(t, []any{"tenant=acme"}, made(`{"job":"call","rule":{"every":"1h"},"args":{"tenant":"acme"}}`))
		require.Equal(t, []any{"tenant=other"}, made(`{"job":"mail","rule":{"every":"1h"},"limited_by":["tenant=other"]}`))
		b.want(400, "PUT", "/schedules?name=n", `{"job":"mail","rule":{"every":"1h"},"limited_by":["*"]}`)
	})
}

func TestLimitsAreMadeChangedAndDrained(t *testing.T) {
	onEach(t, func(t *testing.T, b *bench) {
		const at = "/limits?name=github"
		b.want(404, "PATCH", at, `{"max":3}`)
		b.want(200, "PATCH", at, `{"kind":"semaphore","max":3}`)
		b.want(200, "PATCH", at, `{"max":1}`)
		b.want(200, "PATCH", at, `{"state":"draining"}`)
		one := b.want(200, "GET", at, "")["limits"].([]any)[0].(map[string]any)
		require.Equal(t, "draining", one["state"])
		require.InDelta(t, 1, one["max"], 0)
		b.want(200, "PATCH", at, `{"state":"active"}`)
		b.want(400, "PATCH", at, `{"state":"off","max":2}`)
		b.want(400, "PATCH", at, `{"state":"removed"}`)
		b.want(400, "PATCH", at, `{"max":-1}`)
		b.want(201, "POST", "/runs", `{"job":"mail","limited_by":["github=acme"]}`)
		require.Equal(t, "acme", b.want(200, "GET", "/limits/key?name=github&key=acme", "")["key"])
		b.want(404, "GET", "/limits/key?name=gitlab", "")
		keys := b.want(200, "GET", "/limits/keys?name=github", "")["keys"].([]any)
		require.Equal(t, "acme", keys[0].(map[string]any)["key"])
		require.Equal(t, map[string]any{"n": 1.0}, keys[0].(map[string]any)["waiting"])
		b.want(404, "GET", "/limits/keys?name=gitlab", "")
		b.want(400, "GET", "/limits/keys?name=github&limit=0", "")
		b.want(200, "POST", "/limits/release", `{"name":"github","key":"acme","owner":"`+store.NewRunID().String()+`"}`)
		b.want(400, "POST", "/limits/release", `{"name":"github","owner":"x"}`)
		b.want(200, "GET", "/limits?caps=true", "")
		b.want(200, "PATCH", "/limits?name=spare", `{"kind":"token-bucket","max":5,"period":"1m","burst":2}`)
		b.want(200, "DELETE", "/limits?name=spare", "")
		b.want(404, "DELETE", "/limits?name=none", "")
	})
}

func TestALockIsReleasedByForce(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	_, err := lock.NewLocker(b.store.Locks(), lock.LockerConfig{}).TryAcquire(t.Context(), "deploy/prod", lock.Terms{})
	require.NoError(t, err)
	locks := b.want(200, "GET", "/locks?prefix=deploy", "")["locks"].([]any)
	require.Len(t, locks, 1)
	require.Len(t, locks[0].(map[string]any)["claim"], 8, "a claim is a secret")
	b.want(200, "DELETE", "/locks?name="+url.QueryEscape("deploy/prod")+"&reason=gone", "")
	b.want(404, "DELETE", "/locks?name="+url.QueryEscape("deploy/prod"), "")
	require.Len(t, b.want(200, "GET", "/locks/forced", "")["forced"], 1)
}

func TestFiguresProblemsAndExplanations(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	job := durable.NewJob[map[string]any]("fails", durable.MaxAttempts(1))
	worker := durable.NewWorker(b.store, durable.WorkerConfig{PollInterval: 10 * time.Millisecond})
	durable.Register(worker, job, func(context.Context, *durable.Run[map[string]any]) error { return errors.New("smtp 550 for user 4711") })
	b.declare(job.Info())
	id := b.want(201, "POST", "/runs", `{"job":"fails"}`)["id"].(string)
	stop := b.work(worker)
	require.Equal(t, "dead", b.want(200, "GET", "/runs/"+id+"/wait", "")["state"])
	stop()
	group := b.want(200, "GET", "/problems", "")["groups"].([]any)[0].(map[string]any)
	require.Equal(t, "smtp # for user #", group["like"])
	require.Contains(t, b.want(200, "GET", "/runs/"+id+"/explain", "")["past"], "smtp 550")
	require.Nil(t, b.want(200, "GET", "/runs/"+store.NewRunID().String()+"/explain", "")["state"])
	require.InDelta(t, 1, b.want(200, "POST", "/problems/acknowledge", `{"id":"`+group["id"].(string)+`"}`)["changed"], 0)
	require.Empty(t, b.want(200, "GET", "/problems", "")["groups"])
	require.Len(t, b.want(200, "GET", "/problems?acknowledged=true&job=fails", "")["groups"], 1)
	b.want(404, "POST", "/problems/retry", `{"id":"none"}`)
	b.want(200, "POST", "/runs/"+id+"/acknowledge", "")
	b.want(200, "POST", "/runs/"+id+"/retry", "")
	b.want(409, "POST", "/runs/"+id+"/acknowledge", "")
	for _, path := range []string{"/survey", "/attention", "/series", "/series?range=24h&queue=default&job=fails", "/findings", "/openapi.json"} {
		b.want(200, "GET", path, "")
	}
	b.want(400, "GET", "/series?range=2h", "")
}

func TestAllRunsOfAFilterAreChanged(t *testing.T) {
	onEach(t, func(t *testing.T, b *bench) {
		b.want(201, "POST", "/runs", `{"runs":[`+strings.Repeat(`{"job":"mail","metadata":{"tenant":"acme"}},`, 499)+`{"job":"mail"}]}`)
		b.want(400, "POST", "/bulk", `{"action":"cancel"}`)
		b.want(400, "POST", "/bulk", `{"action":"cancel","filter":{}}`)
		b.want(400, "POST", "/bulk", `{"action":"cancel","filter":{"job":["mail"],"error":""}}`)
		b.want(400, "POST", "/bulk", `{"action":"explode","all":true}`)
		b.want(400, "POST", "/bulk", `{"action":"cancel","filter":{"state":["lost"]}}`)
		status := b.want(202, "POST", "/bulk", `{"action":"cancel","filter":{"job":["mail"],"metadata":{"tenant":"acme"}},"reason":"wrong template"}`)
		require.Subset(t, status["filter"], map[string]any{"job": []any{"mail"}, "metadata": map[string]any{"tenant": "acme"}})
		require.Equal(t, 1.0, status["n"])
		var done map[string]any
		require.Eventually(t, func() bool {
			done = b.want(200, "GET", "/bulk/1", "")
			return done["state"] != "executing"
		}, time.Minute, time.Millisecond)
		require.Equal(t, "done", done["state"])
		require.InDelta(t, 499, done["progress"].(map[string]any)["changed"], 0)
		require.Len(t, b.want(200, "GET", "/bulk", "")["bulk"], 1)
		b.want(202, "DELETE", "/bulk/1", "")
		b.want(404, "GET", "/bulk/2", "")
		b.want(400, "GET", "/bulk/x", "")
		require.InDelta(t, 1, b.want(200, "GET", "/counts", "")["counts"].(map[string]any)["pending"].(map[string]any)["n"], 0)
		changes := b.want(200, "GET", "/audit?kind=bulk", "")["changes"].([]any)
		require.Len(t, changes, 1, "one row for all of it")
	})
}

func TestFourBulkChangesAreUnderWayAtMost(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.want(201, "POST", "/runs", `{"job":"mail"}`)
	blocked := &slow{Store: b.store, begun: make(chan struct{}, 9), release: make(chan struct{})}
	o := operate.New(blocked, operate.Config{})
	for range 4 {
		_, err := o.As("ann").StartBulk(operate.BulkOrder{Action: store.CancelRuns})
		require.NoError(t, err)
		<-blocked.begun
	}
	_, err := o.As("ann").StartBulk(operate.BulkOrder{Action: store.CancelRuns})
	require.ErrorIs(t, err, operate.ErrBusy)
	_, err = o.As("ann").StopBulk(2)
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		status, err := o.Bulk(2)
		return err == nil && status.State == operate.BulkStopped
	}, time.Minute, time.Millisecond)
	_, err = o.As("").StartBulk(operate.BulkOrder{Action: store.CancelRuns})
	require.ErrorIs(t, err, store.ErrInvalid)
	_, err = o.As("ann").StartBulk(operate.BulkOrder{Action: store.CancelRuns, Filter: store.Filter{Limit: 201}})
	require.ErrorIs(t, err, store.ErrInvalid)
	o.Close()
	for _, status := range o.BulkList() {
		require.Equal(t, operate.BulkStopped, status.State)
	}
	_, err = o.As("ann").StartBulk(operate.BulkOrder{Action: store.CancelRuns})
	require.ErrorIs(t, err, operate.ErrBusy)
}

// slow is a store whose lists wait.
type slow struct {
	store.Store

	begun, release chan struct{}
}

func (s *slow) Runs(ctx context.Context, filter store.Filter) (store.Page, error) {
	s.begun <- struct{}{}
	select {
	case <-s.release:
		return s.Store.Runs(ctx, filter)
	case <-ctx.Done():
		return store.Page{}, ctx.Err()
	}
}
