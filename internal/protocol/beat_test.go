package protocol_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/internal/protocol"
	"github.com/durable-worker/durable-worker/lease"
)

var terms30 = lease.Terms{Duration: 30 * time.Second}.WithDefaults()

func claimID(n byte) lease.ClaimID { return lease.ClaimID{n} }

func TestBeat_TimelineOfAnOutage(t *testing.T) {
	// The store answers nothing: tries at a third and then every tenth of the
	// duration, and the lease is lost before it expires.
	b := protocol.Beat{Terms: terms30}
	e := b.Step(protocol.BeatEvent{Kind: protocol.BeatHeld, Claim: claimID(1)})
	var tries []string
	for e.Wake >= 0 {
		at := e.Wake
		e = b.Step(protocol.BeatEvent{Kind: protocol.BeatTick, At: at})
		if len(e.Renew) > 0 {
			tries = append(tries, at.String())
			e = b.Step(protocol.BeatEvent{Kind: protocol.BeatFailed, At: at, Random: 0.5})
		}
		if len(e.Lost) > 0 {
			require.Equal(t, "26.7s", at.String())
		}
	}
	require.Equal(t, "[10s 13s 16s 19s 22s 25s]", fmt.Sprint(tries))
}

func TestBeat_AnswerCountsFromBeforeItWasAsked(t *testing.T) {
	b := protocol.Beat{Terms: terms30}
	b.Step(protocol.BeatEvent{Kind: protocol.BeatHeld, Claim: claimID(1)})
	b.Step(protocol.BeatEvent{Kind: protocol.BeatTick, At: 10 * time.Second})
	b.Step(protocol.BeatEvent{Kind: protocol.BeatAnswered, At: 14 * time.Second, Claims: []lease.ClaimID{claimID(1)}})
	deadline, held := b.Deadline(claimID(1))
	require.True(t, held)
	require.Equal(t, terms30.Deadline(10*time.Second), deadline)
}

func TestBeat_MissingFromTheAnswerIsLostAtOnce(t *testing.T) {
	b := protocol.Beat{Terms: terms30}
	b.Step(protocol.BeatEvent{Kind: protocol.BeatHeld, Claim: claimID(1)})
	b.Step(protocol.BeatEvent{Kind: protocol.BeatHeld, Claim: claimID(2)})
	e := b.Step(protocol.BeatEvent{Kind: protocol.BeatTick, At: 10 * time.Second})
	require.Equal(t, []lease.ClaimID{claimID(1), claimID(2)}, e.Renew, "one renewal for all")
	b.Step(protocol.BeatEvent{Kind: protocol.BeatHeld, At: 10 * time.Second, Asked: 10 * time.Second, Claim: claimID(3)})
	e = b.Step(protocol.BeatEvent{Kind: protocol.BeatAnswered, At: 11 * time.Second, Claims: []lease.ClaimID{claimID(2)}})
	require.Equal(t, []lease.ClaimID{claimID(1)}, e.Lost, "what was not asked for is not lost")
}

func TestBeat_GrantThatCameTooLateIsLost(t *testing.T) {
	b := protocol.Beat{Terms: terms30}
	e := b.Step(protocol.BeatEvent{Kind: protocol.BeatHeld, At: 27 * time.Second, Claim: claimID(1)})
	require.Equal(t, []lease.ClaimID{claimID(1)}, e.Lost)
}

// modelStore is the other side: expiry on a clock of its own, which runs at another
// rate, and takeovers as soon as it allows.
type modelStore struct {
	expires map[lease.ClaimID]time.Duration
	rate    float64
}

func (m *modelStore) now(worker time.Duration) time.Duration {
	return time.Duration(float64(worker) * m.rate)
}

func TestBeat_NeverHeldBeyondTheStoresExpiry(t *testing.T) {
	for seed := range uint64(1000) {
		random := rand.New(rand.NewPCG(seed, 1)) //nolint:gosec // a repeatable sequence
		simulateBeat(t, seed, random)
	}
}

// simulateBeat lets renewals be slow, lost before or after they were carried
// out, and leases be taken over the moment they expire. Invariant: a lease
// that is held by the worker's deadline has not expired in the store.
func simulateBeat(t *testing.T, seed uint64, random *rand.Rand) {
	t.Helper()
	terms := lease.Terms{Duration: time.Duration(1+random.IntN(60)) * time.Second}.WithDefaults()
	store := modelStore{expires: map[lease.ClaimID]time.Duration{}, rate: 1 + (random.Float64()*2-1)*0.009}
	b := protocol.Beat{Terms: terms}
	var now time.Duration
	var answer *protocol.BeatEvent
	var answerAt time.Duration
	handle := func(e protocol.BeatEffects) {
		if len(e.Renew) == 0 {
			return
		}
		arrives := now + time.Duration(random.Float64()*float64(terms.Duration)/12)
		answerAt = arrives + time.Duration(random.Float64()*float64(terms.Duration)/12)
		lostBefore, lostAfter := random.IntN(4) == 0, random.IntN(4) == 0
		event := protocol.BeatEvent{Kind: protocol.BeatAnswered}
		for _, claim := range e.Renew {
			if expiry, known := store.expires[claim]; !lostBefore && known && store.now(arrives) < expiry {
				store.expires[claim] = store.now(arrives) + terms.Duration
				event.Claims = append(event.Claims, claim)
			}
		}
		if lostBefore || lostAfter {
			event = protocol.BeatEvent{Kind: protocol.BeatFailed}
		}
		answer = &event
	}
	for step := range 200 {
		if random.IntN(5) == 0 {
			claim := claimID(byte(step))
			store.expires[claim] = store.now(now) + terms.Duration
			handle(b.Step(protocol.BeatEvent{Kind: protocol.BeatHeld, At: now, Asked: now, Claim: claim}))
		}
		e := b.Step(protocol.BeatEvent{Kind: protocol.BeatTick, At: now})
		handle(e)
		for claim, expiry := range store.expires {
			if deadline, held := b.Deadline(claim); held {
				if now >= deadline || store.now(now) >= expiry {
					t.Fatalf("seed %d: a lease is held past its deadline, or although the store lets others in", seed)
				}
			}
		}
		next := e.Wake
		if answer != nil && (next < 0 || answerAt < next) {
			now = max(now, answerAt)
			event := *answer
			event.At, event.Random, answer = now, random.Float64(), nil
			handle(b.Step(event))
			continue
		}
		if next >= 0 {
			now = max(now, next)
		} else {
			now += time.Second
		}
	}
}

func TestBeat_OnlyTicksAndAnswersSend(t *testing.T) {
	// Holding or releasing does not send: what it was asked to send would be
	// taken for in flight forever.
	b := protocol.Beat{Terms: terms30}
	b.Step(protocol.BeatEvent{Kind: protocol.BeatHeld, Claim: claimID(1)})
	require.Empty(t, b.Step(protocol.BeatEvent{Kind: protocol.BeatHeld, At: 11 * time.Second, Asked: 11 * time.Second, Claim: claimID(2)}).Renew)
	require.Empty(t, b.Step(protocol.BeatEvent{Kind: protocol.BeatDropped, At: 12 * time.Second, Claim: claimID(2)}).Renew)
	require.Empty(t, b.Step(protocol.BeatEvent{Kind: protocol.BeatEnding, At: 12 * time.Second, Claim: claimID(1)}).Renew)
	require.NotEmpty(t, b.Step(protocol.BeatEvent{Kind: protocol.BeatTick, At: 12 * time.Second}).Renew)
}

func TestBeat_WhatTheHolderEndsIsLostOnlyAtItsDeadline(t *testing.T) {
	b := protocol.Beat{Terms: terms30}
	b.Step(protocol.BeatEvent{Kind: protocol.BeatHeld, Claim: claimID(1)})
	require.NotEmpty(t, b.Step(protocol.BeatEvent{Kind: protocol.BeatTick, At: 10 * time.Second}).Renew)
	b.Step(protocol.BeatEvent{Kind: protocol.BeatEnding, At: 10 * time.Second, Claim: claimID(1)})
	b.Step(protocol.BeatEvent{Kind: protocol.BeatEnding, At: 10 * time.Second, Claim: claimID(2)}) // not held: nothing
	require.Empty(t, b.Step(protocol.BeatEvent{Kind: protocol.BeatAnswered, At: 11 * time.Second}).Lost)
	e := b.Step(protocol.BeatEvent{Kind: protocol.BeatTick, At: 20 * time.Second})
	require.Equal(t, []lease.ClaimID{claimID(1)}, e.Renew, "the store may still have it")
	require.Empty(t, b.Step(protocol.BeatEvent{Kind: protocol.BeatAnswered, At: 21 * time.Second}).Lost)
	e = b.Step(protocol.BeatEvent{Kind: protocol.BeatTick, At: 26700 * time.Millisecond})
	require.Equal(t, []lease.ClaimID{claimID(1)}, e.Lost)
}

func TestBeat_AHoldDuringARenewalKeepsItsOwnFirstBeat(t *testing.T) {
	// With a heartbeat of half the lease and a claim that took long, the next beat
	// of the others would come after its deadline.
	terms := lease.Terms{Duration: 30 * time.Second, Heartbeat: 15 * time.Second}
	b := protocol.Beat{Terms: terms}
	b.Step(protocol.BeatEvent{Kind: protocol.BeatHeld, Claim: claimID(1)})
	require.NotEmpty(t, b.Step(protocol.BeatEvent{Kind: protocol.BeatTick, At: 15 * time.Second}).Renew)
	b.Step(protocol.BeatEvent{Kind: protocol.BeatHeld, At: 15500 * time.Millisecond, Asked: 3 * time.Second, Claim: claimID(2)})
	e := b.Step(protocol.BeatEvent{Kind: protocol.BeatAnswered, At: 16 * time.Second, Claims: []lease.ClaimID{claimID(1)}})
	require.Equal(t, 18*time.Second, e.Wake)
	e = b.Step(protocol.BeatEvent{Kind: protocol.BeatTick, At: 18 * time.Second})
	require.Equal(t, []lease.ClaimID{claimID(1), claimID(2)}, e.Renew)
}

func TestBeat_WhatIsUnknownIsNeitherRenewedNorLost(t *testing.T) {
	b := protocol.Beat{Terms: terms30}
	for n := byte(1); n <= 3; n++ {
		b.Step(protocol.BeatEvent{Kind: protocol.BeatHeld, Claim: claimID(n)})
	}
	b.Step(protocol.BeatEvent{Kind: protocol.BeatTick, At: 10 * time.Second})
	e := b.Step(protocol.BeatEvent{Kind: protocol.BeatAnswered, At: 10 * time.Second, Random: 0.5,
		Claims: []lease.ClaimID{claimID(1)}, Unknown: []lease.ClaimID{claimID(2)}})
	require.Equal(t, []lease.ClaimID{claimID(3)}, e.Lost)
	require.Equal(t, 13*time.Second, e.Wake, "it is tried again soon")
	renewed, _ := b.Deadline(claimID(1))
	require.Equal(t, terms30.Deadline(10*time.Second), renewed)
	unknown, held := b.Deadline(claimID(2))
	require.True(t, held)
	require.Equal(t, terms30.Deadline(0), unknown)
}

func TestBeat_ComesSoonerWhileItIsAnsweredLate(t *testing.T) {
	b := protocol.Beat{Terms: terms30}
	late := 6 * time.Second
	e := b.Step(protocol.BeatEvent{Kind: protocol.BeatHeld, Claim: claimID(1), Late: late})
	require.Equal(t, 4*time.Second, e.Wake)
	e = b.Step(protocol.BeatEvent{Kind: protocol.BeatTick, At: e.Wake, Late: late})
	require.Len(t, e.Renew, 1)
	e = b.Step(protocol.BeatEvent{Kind: protocol.BeatAnswered, At: 6 * time.Second, Claims: e.Renew, Late: 20 * time.Second})
	require.Equal(t, 7*time.Second, e.Wake, "a tenth of the lease after the last one, no sooner")
	e = b.Step(protocol.BeatEvent{Kind: protocol.BeatTick, At: 6 * time.Second})
	require.Equal(t, 14*time.Second, e.Wake, "it is not late any more")
}
