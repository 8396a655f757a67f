package durable_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/store"
)

type syncArgs struct {
	Tenant string `json:"tenant"`
	Region string `json:"region,omitempty"`
}

func tenantOf(a syncArgs) string { return a.Tenant }

func TestLimitsOfARun(t *testing.T) {
	tenant := durable.NewLimit("tenant", durable.Semaphore(10))
	api := durable.NewLimit("api", durable.TokenBucket(500, time.Second, 10))
	byCode := durable.NewJob[syncArgs]("sync", durable.Limited(tenant, durable.KeyFrom(tenantOf)), durable.Limited(api, durable.Weight(2)))
	byTemplate := durable.NewJob[syncArgs]("sync", durable.Limited(tenant, durable.KeyOf("{tenant}:{region?}")), durable.MaxConcurrent(3))
	for name, c := range map[string]struct {
		run  store.NewRun
		want []string
	}{
		"by code":          {byCode.New(syncArgs{Tenant: "Acme"}), []string{"tenant=Acme", "api*2"}},
		"by a template":    {byTemplate.New(syncArgs{Tenant: "acme", Region: "eu"}), []string{"tenant=acme:eu", "job:sync"}},
		"its own key":      {byCode.New(syncArgs{}, durable.LimitedBy(tenant, "other", durable.Weight(3))), []string{"tenant*3=other", "api*2"}},
		"one more":         {byCode.New(syncArgs{Tenant: "a"}, durable.Limited(durable.NewLimit("mutex", durable.Mutex()))), []string{"tenant=a", "api*2", "mutex"}},
		"without the code": {durable.RunOf(byTemplate.Info(), []byte(`{"tenant":"acme"}`)), []string{"tenant=acme:", "job:sync"}},
		"a key by hand": {durable.RunOf(byCode.Info(), []byte(`{}`), durable.LimitedBy(tenant, "acme")),
			[]string{"tenant=acme", "api*2"}},
	} {
		t.Run(name, func(t *testing.T) {
			require.NoError(t, c.run.Fault())
			var got []string
			for _, use := range c.run.Limits {
				got = append(got, use.String())
			}
			require.Equal(t, c.want, got)
		})
	}
}

func TestFaultsOfLimits(t *testing.T) {
	tenant := durable.NewLimit("tenant", durable.Semaphore(10))
	fault := func(options ...durable.Option) error {
		run := durable.NewJob[syncArgs]("sync", options...).New(syncArgs{Tenant: "a"})
		return run.Fault()
	}
	require.ErrorContains(t, fault(durable.Limited(tenant, durable.KeyFrom(func(int) string { return "" }))), "KeyFrom takes int, the job's args are durable_test.syncArgs")
	require.ErrorContains(t, fault(durable.Limited(tenant, durable.KeyFrom(func(syncArgs) string { return "" }))), "empty")
	require.ErrorContains(t, fault(durable.Limited(tenant, durable.KeyOf("{region}"))), "region")
	require.ErrorContains(t, fault(durable.Limited(tenant, durable.KeyOf("{region"))), "{region")
	require.ErrorContains(t, fault(durable.Limited(durable.NewLimit("", durable.Mutex()))), "name")
	require.ErrorContains(t, fault(durable.Limited(durable.NewLimit("x", durable.Semaphore(0)))), "max 0")
	require.ErrorContains(t, fault(durable.MaxConcurrent(0)), "max 0")
	unknown := durable.RunOf(durable.NewJob[syncArgs]("sync", durable.Limited(tenant, durable.KeyFrom(tenantOf))).Info(), []byte(`{}`))
	require.ErrorContains(t, unknown.Fault(), "tenant=KEY")
}
