package locktest

import (
	"math/rand/v2"
	"testing"
	"time"
)

func slotTests() map[string]func(*testing.T, *fixture) {
	return map[string]func(*testing.T, *fixture){
		"a cap of three grants three slots and no fourth": exactlyN,
		"a raised cap grants more":                        raised,
		"a lowered cap drains and never grants above":     lowered,
		"any order of calls agrees with a plain model":    modelled,
		"each slot expires by itself":                     slotsExpire,
	}
}

func exactlyN(t *testing.T, f *fixture) {
	var slots [3]held
	seen := map[int]bool{}
	for i := range slots {
		slots[i] = f.take("timer", 3)
		seen[slots[i].Slot] = true
	}
	if len(seen) != 3 {
		t.Fatalf("slots %v, want three different ones", seen)
	}
	f.refused("timer", 3)
	f.release(slots[1], true)
	if again := f.take("timer", 3); again.Slot != slots[1].Slot {
		t.Errorf("slot %d was granted, and %d is free", again.Slot, slots[1].Slot)
	}
	f.refused("timer", 3)
}

func raised(_ *testing.T, f *fixture) {
	f.take("timer", 1)
	f.refused("timer", 1)
	f.take("timer", 3)
	f.take("timer", 3)
	f.refused("timer", 3)
	f.refused("timer", 1)
}

func lowered(t *testing.T, f *fixture) {
	var slots [4]held
	for range slots {
		h := f.take("timer", 4)
		slots[h.Slot] = h
	}
	f.refused("timer", 2)
	f.release(slots[0], true)
	f.refused("timer", 2)
	f.release(slots[1], true)
	f.refused("timer", 2) // slots 2 and 3 are two holders
	f.release(slots[3], true)
	if renewed := f.renew(slots[2]); !renewed[0] {
		t.Error("a slot above the new cap is not renewed")
	}
	f.take("timer", 2)
	f.refused("timer", 2)
	f.release(slots[2], true)
	f.take("timer", 2)
	f.refused("timer", 2)
}

func slotsExpire(_ *testing.T, f *fixture) {
	f.take("timer", 2)
	f.advance(life / 2)
	f.take("timer", 2)
	f.refused("timer", 2)
	f.advance(life/2 + time.Second)
	f.take("timer", 2)
	f.refused("timer", 2)
}

// modelled compares random calls with the plainest model: a grant is made
// exactly when fewer than the cap are held.
func modelled(t *testing.T, f *fixture) {
	random := rand.New(rand.NewPCG(1, 2))
	left := map[held]time.Duration{} // of every grant that stands
	for range 250 {
		switch random.IntN(6) {
		case 0, 1, 2:
			slots := 1 + random.IntN(5)
			r := request("timer", slots)
			answer := f.ask(r)
			if answer.Granted != (len(left) < slots) {
				t.Fatalf("with %d held and a cap of %d: %+v", len(left), slots, answer)
			}
			for h := range left {
				if answer.Granted && (h.Slot == answer.Slot || answer.Slot >= slots || answer.Fence <= h.Fence) {
					t.Fatalf("granted %+v with a cap of %d beside %+v", answer, slots, h)
				}
			}
			if answer.Granted {
				left[held{answer, r.Name, r.Claim}] = life
			}
		case 3:
			for h := range left {
				f.release(h, true)
				delete(left, h)
				break
			}
		case 4:
			for h := range left {
				if !f.renew(h)[0] {
					t.Fatalf("not renewed: %+v", h)
				}
				left[h] = life
				break
			}
		case 5:
			passed := time.Duration(random.IntN(3)) * life / 4
			f.advance(passed)
			for h := range left {
				if left[h] -= passed; left[h] <= 0 {
					delete(left, h)
				}
			}
		}
	}
}
