package chaos_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/internal/pgtest"
	"github.com/durable-worker/durable-worker/store"
)

// Long lines of short runs, each under one limit: their places are handed on by the settles of
// several processes at the same time, some of which are killed in between or lose an answer.
func TestLimitsHold_PlacesHandedOn(t *testing.T) {
	dsn := pgtest.Database(t)
	losing, through := loseAnswers(t, dsn)
	p := newPit(t, openStore(t, dsn))
	p.dsn, p.make, p.runs = through, underOne, 3000
	for range 3 {
		p.start()
	}
	p.holds(p.trouble)
	require.Positive(t, losing.lost.Load())
}

// underOne makes a run under one limit.
func underOne() durable.NewRun {
	args := boundedArgs{For: store.Duration(time.Duration(rand.IntN(3000)) * time.Microsecond)}
	key := string(rune('a' + rand.IntN(2)))
	switch rand.IntN(4) {
	case 0:
		return bounded.New(args, durable.LimitedBy(docLimit, key))
	case 1:
		return bounded.New(args, durable.LimitedBy(tenantLimit, key))
	default:
		return bounded.New(args, durable.LimitedBy(apiLimit, ""))
	}
}
