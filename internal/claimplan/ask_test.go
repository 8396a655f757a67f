package claimplan_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/internal/claimplan"
	"github.com/durable-worker/durable-worker/store"
)

// limitLine is above every lane's number.
const limitLine store.LineID = 1<<30 + 7

func turnsHead(line store.LineID, priority, second int) store.Head {
	head := dueHead(0, priority, second)
	head.Line = line
	return head
}

func laneHead(lane store.LaneID, priority int) store.Head {
	return store.Head{Lane: lane, Queue: "default", Job: "job", Priority: priority}
}

func TestPlan_TurnsAreAskedForByThemselves(t *testing.T) {
	ask := planned(laneHead(1, 0), laneHead(2, 0), turnsHead(1, 0, 3), turnsHead(limitLine, 0, 2)).Ask(20, noCap)
	require.Empty(t, ask.Steps)
	require.Equal(t, []store.Admission{{Line: 1, Take: 20}, {Line: limitLine, Take: 20}}, ask.Admissions)
	require.Equal(t, []store.LaneID{1, 2}, ask.Lanes)
	require.Equal(t, 20, ask.Limit)
}

func TestPlan_RunsAndTurnsOfOnePriorityAlternateAndShare(t *testing.T) {
	p := planned(dueHead(1, 0, 1), dueHead(2, 0, 1), laneHead(3, 0), turnsHead(3, 0, 1), laneHead(4, -1))
	limited := 0
	for range 10 {
		ask := p.Ask(90, noCap)
		request := &store.ClaimRequest{Steps: ask.Steps, Admissions: ask.Admissions, Limit: ask.Limit}
		if len(ask.Admissions) > 0 {
			limited++
			require.Equal(t, 30, ask.Limit, "one of three")
			require.Equal(t, []store.LaneID{1, 2, 3}, ask.Lanes, "no lane of a lower priority")
			p.ApplyClaim(request, claimed(3, 30, 1))
			continue
		}
		require.Equal(t, 60, ask.Limit)
		p.ApplyClaim(request, claimed(1, 60, 2))
	}
	require.Equal(t, 5, limited)
}

func TestPlan_TurnsOfALowerPriorityComeLater(t *testing.T) {
	p := planned(dueHead(1, 4, 1), dueHead(2, 0, 1), dueHead(3, -4, 1), laneHead(4, 0), turnsHead(4, 0, 1))
	ask := p.Ask(10, noCap)
	require.Equal(t, []store.LaneID{1, 2}, lanesOf(ask.Steps), "down to the priority of the turns")
	take := func(ask claimplan.Ask, runs ...store.ClaimedRun) {
		p.ApplyClaim(&store.ClaimRequest{Steps: ask.Steps, Admissions: ask.Admissions, Limit: ask.Limit}, runs)
	}
	take(ask)
	ask = p.Ask(10, noCap)
	require.Equal(t, store.LineID(4), ask.Admissions[0].Line)
	take(ask)
	require.Equal(t, []store.LaneID{3}, lanesOf(p.Ask(10, noCap).Steps))

	p = planned(laneHead(1, 4), dueHead(3, 0, 1), laneHead(2, -4), turnsHead(limitLine, 4, 1))
	require.Equal(t, []store.LaneID{1, 3}, p.Ask(10, noCap).Lanes, "a limit lets no run overtake one of a higher priority")
}

func TestPlan_TheOldestOfAnyPriorityIsRepaidWhateverItsKind(t *testing.T) {
	p := planned(dueHead(1, 4, 100), laneHead(2, -4), turnsHead(2, -4, 1))
	plain, limited := 0, 0
	for range 40 {
		ask := p.Ask(32, noCap)
		request := &store.ClaimRequest{Steps: ask.Steps, Admissions: ask.Admissions, Limit: ask.Limit}
		if len(ask.Admissions) > 0 {
			limited += ask.Limit
			p.ApplyClaim(request, claimed(2, ask.Limit, 1))
		} else {
			plain += ask.Limit
			p.ApplyClaim(request, claimed(1, ask.Limit, 100))
		}
	}
	require.InDelta(t, 1./16, float64(limited)/float64(plain+limited), 0.03)
}

func TestPlan_AnAdmissionKeepsTheCapsOfQueues(t *testing.T) {
	mail := laneHead(2, 0)
	mail.Queue = "mail"
	p := planned(laneHead(1, 0), mail, turnsHead(limitLine, 0, 1))
	room := func(mail int) func(string) int {
		return func(queue string) int {
			if queue == "mail" {
				return mail
			}
			return -1
		}
	}
	require.Equal(t, []store.LaneID{1}, p.Ask(10, room(0)).Lanes)
	ask := p.Ask(10, room(3))
	require.Equal(t, []store.LaneID{1, 2}, ask.Lanes)
	require.Equal(t, 3, ask.Limit)
}

func TestPlan_AnIsolatedRunUnderALimitIsAskedForAlone(t *testing.T) {
	p := planned(laneHead(5, 0), turnsHead(-5, 0, 1))
	require.Empty(t, p.Ask(10, noCap).Admissions)
	ask := p.AskAlone(0)
	require.Equal(t, store.LineID(-5), ask.Admissions[0].Line)
	require.Equal(t, []store.LaneID{-5}, ask.Lanes)
	require.Equal(t, 1, ask.Limit)
}

func TestPlan_AShortAdmissionHasTheLinesReadAgain(t *testing.T) {
	p := planned(laneHead(1, 0), turnsHead(1, 0, 1))
	ask := p.Ask(10, noCap)
	p.ApplyClaim(&store.ClaimRequest{Admissions: ask.Admissions, Limit: ask.Limit}, claimed(1, 10, 1))
	require.False(t, mustRead(p, 0), "a full one says nothing about what is left")
	p.ApplyClaim(&store.ClaimRequest{Admissions: ask.Admissions, Limit: ask.Limit}, claimed(1, 3, 1))
	require.True(t, mustRead(p, 0))
	empty := p.Ask(10, noCap)
	require.True(t, empty.Empty())
	read(p, time.Second, laneHead(1, 0), turnsHead(1, 0, 2))
	require.Len(t, p.Ask(10, noCap).Admissions, 1)
}

func TestPlan_AWakeUpAfterAVainClaimIsAboutTurnsFirst(t *testing.T) {
	p := planned(laneHead(1, 0), turnsHead(1, 0, 1))
	take := func(ask claimplan.Ask, runs ...store.ClaimedRun) {
		p.ApplyClaim(&store.ClaimRequest{Steps: ask.Steps, Admissions: ask.Admissions, Limit: ask.Limit}, runs)
	}
	take(p.Ask(20, noCap), claimed(1, 5, 1)...)
	idle := turnsHead(1, 0, 1)
	idle.Waiting = false
	read(p, 0, laneHead(1, 0), idle) // nothing is due
	by, _ := p.Consider(claimplan.Woken{Lanes: map[store.LaneID]store.Due{1: {Lane: 1}}}, 0)
	require.Equal(t, claimplan.NamedLanes, by)

	ask := p.Ask(20, noCap)
	require.Len(t, ask.Admissions, 1, "the last claim of limited runs got some, and there were no others")
	require.Equal(t, 20, ask.Limit, "there is nothing to share with")
	take(ask, claimed(1, 20, 1)...)

	ask = p.Ask(20, noCap)
	require.Len(t, ask.Steps, 1, "turns starve no other runs")
	take(ask)
	require.Len(t, p.Ask(20, noCap).Admissions, 1)
}
