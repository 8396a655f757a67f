package claimplan_test

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/internal/claimplan"
	"github.com/durable-worker/durable-worker/store"
)

// brings applies a claim of one run with so many bytes of args.
func brings(p *claimplan.Plan, size int) {
	p.ApplyClaim(&store.ClaimRequest{Limit: 1}, []store.ClaimedRun{{Lane: 1, Args: bytes.Repeat([]byte("x"), size)}})
}

func TestSize_StaysBelowTheBytesOfAClaim(t *testing.T) {
	p := claimplan.New(4 * store.MaxArgsSize)
	require.Equal(t, 4, p.Size(1000), "args may be as large as they may be")
	brings(p, 999)
	require.Equal(t, min(1000, 4*store.MaxArgsSize/1000), p.Size(1000))
	brings(p, store.MaxArgsSize/2-1)
	require.Equal(t, 8, p.Size(1000), "the estimate rises immediately")
	brings(p, 0)
	require.Equal(t, 10, p.Size(1000), "and decays slowly")
	require.Equal(t, 3, p.Size(3))
	require.Equal(t, 1, claimplan.New(1).Size(1000), "a run is claimed however large it is")
}

func TestSize_HalvesAfterAFailureAndGrowsWithFullQuickClaims(t *testing.T) {
	p := claimplan.New(1000 * store.MaxArgsSize)
	p.ClaimFailed(100)
	require.Equal(t, 50, p.Size(100))
	p.ClaimFailed(1)
	require.Equal(t, 1, p.Size(100))
	p.ClaimWasQuick(0)
	require.Equal(t, 1, p.Size(100), "an empty claim says nothing")
	p.ClaimWasQuick(1)
	require.Equal(t, 2, p.Size(100))
	p.ClaimWasQuick(1)
	require.Equal(t, 2, p.Size(100), "it was not full")
	for range 20 {
		p.ClaimWasQuick(1 << 20)
	}
	require.Equal(t, 100, p.Size(100))
}
