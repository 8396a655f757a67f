package dashboard_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/store"
)

func TestThePageOfALimitListsTheKeyThatFloodsFirst(t *testing.T) {
	t.Parallel()
	onEngines(t, func(t *testing.T, db engine) {
		s := newSite(t, db)
		for _, name := range []string{"tenant", "plain"} {
			limit := store.Limit{Name: name, Kind: store.LimitSemaphore, Max: 5}
			require.NoError(t, db.ChangeLimit(t.Context(), store.LimitChange{Command: store.SetLimit, Limit: limit, By: "ann"}))
		}
		job := durable.NewJob[note]("import")
		limited := func(text string) store.NewRun {
			use, err := store.ParseLimitUse(text)
			require.NoError(t, err)
			return job.New(note{"x"}, durable.LimitedByUse(use))
		}
		runs := []store.NewRun{limited("tenant=bolt"), limited("plain")}
		for range 30 {
			runs = append(runs, limited("tenant=acme"))
		}
		_, err := durable.NewClient(db).Enqueue(t.Context(), runs...)
		require.NoError(t, err)

		body := s.get("limits?name=tenant")
		has(t, body, "limits?key=acme&amp;name=tenant", "2 of 2, most waiting first", ">30<", ">1<")
		require.Less(t, strings.Index(body, "key=acme"), strings.Index(body, "key=bolt"))
		lacks(t, body, "empty key", "Runs without a key")
		has(t, s.get("limits?name=tenant&key=acme"), "Key acme", "30 waiting")
		plain := s.get("limits?name=plain")
		has(t, plain, "Places", "1 waiting")
		lacks(t, plain, "most waiting first")
	})
}
