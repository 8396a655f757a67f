package wake

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/postgres/internal/conn"
)

// crewOf returns the members of a crew, each with its own view of it.
func crewOf(n int) []*crew {
	names := &conn.Namespace{Schema: conn.DefaultSchema}
	all := make([]*crew, n)
	for i := range all {
		all[i] = newCrew(names, store.Serves{Queues: []string{"q"}, Jobs: []string{"a", "b"}})
		all[i].self = uint32(1000 + 7*i)
		for j := range n {
			all[i].members = append(all[i].members, uint32(1000+7*j))
		}
	}
	return all
}

// turns returns who answers a wake-up, now and as a stand-in.
func turns(all []*crew, due store.Due) (now, later []int) {
	for i, c := range all {
		if after, mine := c.turn(due); mine && after == 0 {
			now = append(now, i)
		} else if mine {
			later = append(later, i)
		}
	}
	return now, later
}

func TestCrew_TurnsGoAround(t *testing.T) {
	for _, n := range []int{1, 2, 5, 20, 100} {
		all, answered, standing := crewOf(n), make([]int, n), 0
		const draws = 4000
		for range draws {
			now, later := turns(all, store.Due{Lane: 1, Runs: 1, Draw: newDraw()})
			require.Len(t, now, 1, "one of %d", n)
			answered[now[0]]++
			standing += len(later)
			require.LessOrEqual(t, len(later), 1)
		}
		for i := range answered {
			require.InDelta(t, draws/n, answered[i], float64(draws/n)*0.6+20, "worker %d of %d", i, n)
		}
		switch {
		case n == 1:
			require.Zero(t, standing)
		case n <= standIns:
			require.Equal(t, draws, standing, "the second always replaces the first")
		default:
			require.InDelta(t, float64(draws)*standIns/float64(n), standing, float64(draws)/10+20)
		}
	}
}

func TestCrew_AWakeUpThatIsPassedOnGoesToTheNextAndEnds(t *testing.T) {
	all := crewOf(5)
	for range 200 {
		due, seen := store.Due{Lane: 1, Runs: 1, Draw: newDraw()}, map[int]bool{}
		for ; due.Passed < 5; due.Passed++ {
			now, _ := turns(all, due)
			require.Len(t, now, 1)
			require.False(t, seen[now[0]], "it has passed it on")
			seen[now[0]] = true
		}
		now, later := turns(all, due)
		require.Empty(t, now, "all have passed it on")
		require.Empty(t, later)
	}
}

func TestCrew_ManyRunsWakeMany(t *testing.T) {
	all := crewOf(20)
	for runs, want := range map[int]int{0: 1, 1: 1, 16: 1, 17: 2, 100: 7, 10_000: 20} {
		now, _ := turns(all, store.Due{Lane: 1, Runs: runs, Draw: newDraw()})
		require.Len(t, now, want, "%d runs", runs)
	}
}

func TestCrew_WhoDoesNotKnowTheOthersAnswers(t *testing.T) {
	c := crewOf(20)[0]
	c.members = nil
	_, mine := c.turn(store.Due{Lane: 1, Draw: 7})
	require.True(t, mine)
	now, _ := turns(crewOf(20), store.Due{Lane: 1})
	require.Len(t, now, 20, "a wake-up of an older program has no number")
}

func TestCrew_AMemberThatHasGoneChangesOnlyItsOwnTurns(t *testing.T) {
	all, fewer := crewOf(20), crewOf(20)
	for _, c := range fewer {
		c.members = c.members[:19]
	}
	moved := 0
	for range 2000 {
		due := store.Due{Lane: 1, Runs: 1, Draw: newDraw()}
		before, _ := turns(all, due)
		after, _ := turns(fewer[:19], due)
		require.Len(t, after, 1)
		if before[0] != after[0] {
			require.Equal(t, 19, before[0])
			moved++
		}
	}
	require.InDelta(t, 100, moved, 60)
}

func TestCrew_WhoComesAndGoesIsKnownImmediately(t *testing.T) {
	all := crewOf(3)
	last := all[2]
	for _, c := range all[:2] {
		gone, ok := readChange("SELF " + last.change(crewLeaves, last.own()))
		require.True(t, ok)
		c.take(gone)
		require.Len(t, c.members, 2)
		back, ok := readChange("SELF " + last.change(crewJoins, last.own()))
		require.True(t, ok)
		c.take(back)
		c.take(back)
		require.ElementsMatch(t, last.members, c.members)
		back.key++
		back.member = 5
		c.take(back)
		require.Len(t, c.members, 3, "of another crew")
	}
	for _, text := range []string{"SELF", "SELF j", "SELF jx", "SELF d1,2", "SELF j1,2,3"} {
		_, ok := readChange(text)
		require.False(t, ok, text)
	}
}

func TestCrew_HearsOnlyOfWhatItServes(t *testing.T) {
	c := crewOf(1)[0]
	due := func(queue, job string) store.Signal {
		return store.Signal{Kind: store.RunsDue, Due: store.Due{Lane: 3, Names: NamesOf(queue, job), Draw: 9}}
	}
	require.Empty(t, c.fold([]store.Signal{due("q", "other"), due("other", "a")}))
	require.Equal(t, []store.Signal{due("q", "b")}, c.fold([]store.Signal{due("q", "b")}))
	ended, anywhere := store.Signal{Kind: store.RunEnded}, store.Signal{Kind: store.RunsDue}
	require.Equal(t, []store.Signal{anywhere, ended}, c.fold([]store.Signal{anywhere, ended, anywhere}))
	require.Equal(t, []store.Signal{anywhere}, (*crew)(nil).fold([]store.Signal{due("q", "a"), due("q", "b")}), "who does not work hears that runs are due")
}

func TestDuePayloads(t *testing.T) {
	var sent, read []store.Signal
	var dues []store.Due
	for i := range 500 {
		due := store.Due{Lane: store.LaneID(i + 1), Names: NamesOf("q", "a") + uint64(i), Runs: i, Limited: i%3 > 0, In: time.Duration(i%2) * time.Second, Draw: 5}
		dues, sent = append(dues, due), append(sent, store.Signal{Kind: store.RunsDue, Due: due})
	}
	passed := store.Due{Lane: 9, Names: 1, Runs: 1, Draw: 8, Passed: 2, Every: 6 * time.Millisecond, For: 50 * time.Millisecond}
	dues, sent = append(dues, passed), append(sent, store.Signal{Kind: store.RunsDue, Due: passed})
	texts := duePayloads("SELF", dues)
	require.Len(t, texts, 6)
	for _, text := range texts {
		require.Less(t, len(text), 8000)
		require.NotZero(t, (len(text)-len("SELF "))%markLength, "an older program would take it for marks")
		require.Empty(t, signals("SELF", text), "one's own")
		read = append(read, signals("OTHER", text)...)
	}
	require.Equal(t, sent, read)
	for _, text := range []string{"OTHER d", "OTHER d1", "OTHER d1,0,0", "OTHER d1,0,0,0;", "OTHER d1,0,0,0;1,2,3", "OTHER d1,0,0,0;x"} {
		require.Equal(t, []store.Signal{{Kind: store.RunsDue}}, signals("SELF", text), text)
	}
}

func TestDueBox_AddsUpWhatIsDueAndKeepsWhatIsToBe(t *testing.T) {
	var b dueBox
	b.add(store.Due{Lane: 1, Runs: 2, Limited: true}, store.Due{Lane: 1, Runs: 3}, store.Due{Lane: 1, Runs: 1, In: time.Minute}, store.Due{Lane: 1, Runs: 1, In: time.Second},
		store.Due{Lane: 1, Draw: 4, Passed: 1})
	all, overrun := b.take(nil)
	require.False(t, overrun)
	require.Len(t, all, 4)
	for _, due := range all {
		switch {
		case due.Passed == 1:
			require.Equal(t, uint32(4), due.Draw)
		case due.In == 0:
			require.Equal(t, 5, due.Runs)
			require.True(t, due.Limited)
		case due.In <= time.Second:
			require.InDelta(t, time.Second, due.In, float64(100*time.Millisecond))
		default:
			require.InDelta(t, time.Minute, due.In, float64(100*time.Millisecond))
		}
	}
	for i := range MostDue + 1 {
		b.add(store.Due{Lane: store.LaneID(i + 1)})
	}
	_, overrun = b.take(nil)
	require.True(t, overrun, "then a wake-up goes to all")
	all, overrun = b.take(nil)
	require.Empty(t, all)
	require.False(t, overrun)
}

func TestPace(t *testing.T) {
	one := func(lane store.LaneID) []store.Due { return []store.Due{{Lane: lane, Runs: 1}} }
	t.Run("seldom: each immediately, and none reads again", func(t *testing.T) {
		var p pace
		for now := time.Second; now < 3*time.Second; now += 20 * time.Millisecond {
			p.enqueued(now)
			dues := one(1)
			require.True(t, p.may(now, dues))
			p.notified(now, dues)
			require.Zero(t, dues[0].For)
		}
	})
	t.Run("often: a worker looks by itself, and whatever becomes of it others are notified within the watch", func(t *testing.T) {
		var p pace
		sent, last, noticed := 0, time.Duration(0), time.Duration(0)
		for now := time.Second; now < 3*time.Second; now += 10 * time.Millisecond {
			p.enqueued(now)
			dues := one(1)
			rest := p.rest(now, dues)
			require.LessOrEqual(t, rest, watchFor)
			if p.may(now, dues) {
				p.notified(now, dues)
				sent, last = sent+1, now
				noticed = dues[0].For
			} else {
				require.LessOrEqual(t, now-last, watchFor)
			}
		}
		require.Less(t, sent, 60, "in two seconds")
		require.Equal(t, watchFor, noticed)
	})
	t.Run("what the watch does not cover goes out soon", func(t *testing.T) {
		p, now := watching()
		require.Positive(t, p.rest(now, one(1)))
		for name, dues := range map[string][]store.Due{
			"another lane": one(2), "a burst": {{Lane: 1, Runs: watchMost + 1}}, "passed on": {{Lane: 1, Runs: 1, Draw: 3, Passed: 1}},
			"not due yet": {{Lane: 1, Runs: 1, In: time.Second}}, "no lane": nil,
		} {
			require.LessOrEqual(t, p.rest(now, dues), hintPause, name)
		}
	})
	t.Run("lanes in turn: one worker looks in all, and each is notified of again within the watch", func(t *testing.T) {
		var p pace
		var b dueBox
		sent, draws := 0, map[uint32]bool{}
		noted := map[store.LaneID]time.Duration{} // when a lane that has runs was last notified of
		for now := time.Second; now < 3*time.Second; now += 10 * time.Millisecond {
			p.enqueued(now)
			b.add(one(store.LaneID(now/(10*time.Millisecond)%3 + 1))...)
			all, _ := b.all()
			if p.rest(now, all) > 0 {
				continue
			}
			dues, _ := b.take(p.covered(now, all))
			require.NotEmpty(t, dues)
			dues = p.notified(now, dues)
			sent++
			for _, due := range dues {
				noted[due.Lane], draws[due.Draw] = now, true
			}
			for lane, at := range noted {
				require.LessOrEqual(t, now-at, watchFor+30*time.Millisecond, "lane %d", lane)
			}
		}
		require.Less(t, sent, 80, "in two seconds")
		require.Less(t, len(draws), 50)
	})
	t.Run("what is covered stays when another lane goes, to the worker that looks already", func(t *testing.T) {
		p, now := watching()
		now += hintPause
		draw, until := p.watch.draw, p.watch.until
		both, second := append(one(1), one(2)...), one(2)
		require.LessOrEqual(t, p.rest(now, both), time.Duration(0))
		covered := p.covered(now, both)
		require.True(t, covered(both[0]))
		require.False(t, covered(both[1]))
		p.notified(now, second)
		require.Equal(t, draw, second[0].Draw)
		require.Equal(t, until-now, second[0].For)
		require.Equal(t, until-now, p.rest(now, both), "now both are covered")
		later := []store.Due{{Lane: 3, Runs: 1, In: time.Second}}
		p.notified(now, later)
		require.NotEqual(t, draw, later[0].Draw)
		require.Equal(t, until-now, p.rest(now, both), "what is due later ends no watch")
		many := []store.Due{{Lane: 1, Runs: watchMost + 1}}
		p.notified(now, many)
		require.NotEqual(t, draw, many[0].Draw, "a burst is for others")
	})
	t.Run("a watch begins in the lanes that runs came in lately, too", func(t *testing.T) {
		var p pace
		lanes := map[store.LaneID]int{}
		for now := time.Second; now < 6*time.Second; now += 10 * time.Millisecond {
			p.enqueued(now)
			if dues := one(store.LaneID(now/(10*time.Millisecond)%50 + 1)); p.rest(now, dues) <= 0 {
				dues = p.notified(now, dues)
				require.Positive(t, dues[0].Runs)
				require.LessOrEqual(t, len(p.watch.lanes), watchLanes+10)
				for _, due := range dues[1:] {
					require.Zero(t, due.Runs, "nothing is known to be due there")
					require.Equal(t, dues[0].Draw, due.Draw)
					require.Equal(t, dues[0].For, due.For)
					lanes[due.Lane]++
				}
			}
		}
		require.Len(t, lanes, 50)
		for now := 10 * time.Second; now < 12*time.Second; now += 10 * time.Millisecond {
			p.enqueued(now)
			p.notified(now, one(1))
		}
		require.Len(t, p.known, 1, "the others are forgotten")
	})
	t.Run("runs that are due later are notified of together", func(t *testing.T) {
		var p pace
		var b dueBox
		sent := 0
		for now := time.Second; now < 3*time.Second; now += 10 * time.Millisecond {
			p.enqueued(now)
			b.add(store.Due{Lane: 1, Runs: 1, In: 2 * time.Second})
			all, _ := b.all()
			rest := p.rest(now, all)
			require.LessOrEqual(t, rest, laterFor)
			if rest <= 0 {
				dues, _ := b.take(p.covered(now, all))
				p.notified(now, dues)
				sent++
			}
		}
		require.InDelta(t, 2*time.Second/laterFor, sent, 2)
		require.LessOrEqual(t, p.rest(3*time.Second, []store.Due{{Lane: 1, Runs: 1, In: laterFor}}), hintPause, "one that is due soon does not wait")
	})
	t.Run("a notification of no lane leaves the watch that is under way", func(t *testing.T) {
		p, now := watching()
		before := p.rest(now, one(1))
		require.Greater(t, before, hintPause)
		p.notified(now, nil)
		require.Equal(t, before, p.rest(now, one(1)))
		require.Equal(t, hintPause, p.rest(now, one(2)), "but it is one")
	})
}

// watching returns a pace amid a watch of lane 1, which has often been enqueued to.
func watching() (p *pace, now time.Duration) {
	p = &pace{}
	for now = time.Second; now < 1500*time.Millisecond || now < p.watch.until-watchFor/2; now += 5 * time.Millisecond {
		p.enqueued(now)
		if dues := []store.Due{{Lane: 1, Runs: 1}}; p.may(now, dues) {
			p.notified(now, dues)
		}
	}
	return p, now
}

// TestMembersLeaveWhatIsDueLaterToEachOther has every member of a crew see the same head.
func TestMembersLeaveWhatIsDueLaterToEachOther(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 6000, time.UTC)
	firsts := map[uint32]int{}
	for i := range 200 {
		due, found := at.Add(time.Duration(i)*time.Millisecond), map[time.Duration]int{}
		for self := uint32(1); self <= 8; self++ {
			c := &crew{self: self, members: []uint32{1, 2, 3, 4, 5, 6, 7, 8}}
			heads := []store.Head{{Lane: 1, Waiting: true, DueAt: due, In: time.Second}, {Lane: 2, Waiting: true, DueAt: at, In: -time.Second},
				{Lane: -1, Waiting: true, DueAt: due, In: time.Second}, {Line: 7, Waiting: true, DueAt: due, In: time.Second}}
			c.leave(heads)
			if found[heads[0].After]++; heads[0].After == leaveFirst {
				firsts[self]++
			}
			for _, other := range heads[1:] {
				require.Zero(t, other.After, "it is due, or all who see it look")
			}
		}
		require.Equal(t, 1, found[leaveFirst])
		require.Equal(t, 1, found[leaveNext])
		require.Len(t, found, 8, "the others one after the other")
	}
	require.Len(t, firsts, 8)
	for _, members := range [][]uint32{nil, {1}} {
		c := &crew{self: 1, members: members}
		heads := []store.Head{{Lane: 1, Waiting: true, DueAt: at, In: time.Second}}
		c.leave(heads)
		require.Zero(t, heads[0].After, "there is no other")
	}
}

func TestOnlyNewsWakesTheSender(t *testing.T) {
	var b dueBox
	due := func(lane store.LaneID, runs int, in time.Duration) store.Due {
		return store.Due{Lane: lane, Runs: runs, In: in}
	}
	require.True(t, b.add(due(1, 1, 0)), "the first")
	require.False(t, b.add(due(1, 1, 0)), "one more of the same lane")
	require.True(t, b.add(due(2, 1, 0)), "another lane")
	require.True(t, b.add(due(1, 1, time.Minute)), "one that is due later")
	require.True(t, b.add(due(1, 1, time.Second)), "one that is due earlier")
	require.True(t, b.add(due(1, 0, time.Second)), "one of which the instant is known roughly")
	require.False(t, b.add(due(1, 0, time.Minute)), "one after it")
	require.True(t, b.add(due(1, 0, time.Millisecond)), "one before it")
	require.True(t, b.add(due(2, watchMost, 0)), "more than one worker is to find")
	require.False(t, b.add(due(2, watchMost, 0)), "still more of them")
	passed := due(1, 1, 0)
	passed.Draw = 7
	require.True(t, b.add(passed), "one that is passed on")
	all, overrun := b.take(nil)
	require.Len(t, all, 6)
	require.False(t, overrun)
	require.True(t, b.add(due(1, 1, 0)), "the first after the box was emptied")
}
