package access

import (
	"errors"
	"hash/maphash"
	"math"
	"net/http"
	"net/netip"
	"sync"
	"time"
)

// The bounds of guesses. A guess is a wrong secret that its network has not sent before in
// the same guessWindow: a program that repeats an old token uses none up.
const (
	guessWindow  = time.Minute
	guessesMost  = 5              // in a guessWindow, of one network
	guessesKnown = 60             // the same, before a secret that has been right from there is refused too
	guessesInAll = 100            // of all networks, before those are refused from which no secret has been right
	knownFor     = 12 * time.Hour // since a secret was right from a network
	networksMost = 10_000         // that are remembered
	unbounded    = math.MaxInt    // in place of guessesKnown
)

// errGuesses means that too many guesses have come before.
var errGuesses = errors.New("too many guesses")

// guard counts wrong secrets and slows guessing down. Its caller finds out which secret is
// right, and asks the guard before it answers.
//
// Invariant: what a network that has used up its guesses is answered does not depend on
// whether its secret is right, unless the same secret has been right from there before. No
// number of guesses from other networks refuses a network from which a secret has been right.
type guard struct {
	seed maphash.Seed // of this process: fingerprints of secrets are of no use elsewhere
	most int          // guesses of a network before a secret that has been right from there is refused

	mu       sync.Mutex
	networks map[netip.Prefix]*network
	all      window
}

// network is what has come from one network.
type network struct {
	window

	wrong map[uint64]bool    // fingerprints of the guesses in the window; true: it was answered as wrong
	right map[Role]time.Time // when the secret of a role was right last
}

// window counts what began less than a guessWindow ago.
type window struct {
	since time.Time
	count int
}

// over reports whether the window is over, and begins another one if so.
func (w *window) over(now time.Time) bool {
	if w.count > 0 && now.Sub(w.since) < guessWindow {
		return false
	}
	w.since, w.count = now, 0
	return true
}

func newGuard(most int) *guard {
	return &guard{seed: maphash.MakeSeed(), most: most, networks: map[netip.Prefix]*network{}}
}

// check counts a secret that a request has given. An error refuses the request, whatever
// the secret is good for: role; zero: it is wrong.
func (g *guard) check(r *http.Request, secret string, role Role, now time.Time) error {
	from, mark := networkOf(r), maphash.String(g.seed, secret)
	g.mu.Lock()
	defer g.mu.Unlock()
	n := g.networks[from]
	if n == nil {
		n = &network{wrong: map[uint64]bool{}, right: map[Role]time.Time{}}
	}
	if n.over(now) {
		clear(n.wrong)
	}
	if n.wrong[mark] {
		return nil // the client knows that it is wrong
	}
	most := guessesMost
	if now.Sub(n.right[role]) < knownFor {
		most = g.most
	}
	g.all.over(now)
	switch {
	case n.count >= most:
		if role == 0 {
			n.note(mark, false)
		}
		return tooMany("your network", n.since, now)
	case g.all.count >= guessesInAll && !n.known(now):
		return tooMany("all networks", g.all.since, now)
	case role == 0:
		g.all.count++
		n.note(mark, true)
	default:
		n.right[role] = now
	}
	g.remember(from, n, now)
	return nil
}

// note notes a guess, as many as matter.
func (n *network) note(mark uint64, answered bool) {
	if _, again := n.wrong[mark]; !again && n.count < guessesKnown {
		n.wrong[mark] = answered
		n.count++
	}
}

// known reports whether a secret has been right from the network.
func (n *network) known(now time.Time) bool {
	for _, at := range n.right {
		if now.Sub(at) < knownFor {
			return true
		}
	}
	return false
}

// remember keeps a network, if there is room: those from which a secret was right are few,
// and guessesInAll bounds the others.
func (g *guard) remember(from netip.Prefix, n *network, now time.Time) {
	if g.networks[from] != nil {
		return
	}
	if len(g.networks) >= networksMost {
		for other, seen := range g.networks {
			if now.Sub(seen.since) >= guessWindow && !seen.known(now) {
				delete(g.networks, other)
			}
		}
	}
	if len(g.networks) < networksMost {
		g.networks[from] = n
	}
}

// tooMany refuses a request without a word about its secret.
func tooMany(from string, since, now time.Time) error {
	return &denied{reason: "too many wrong secrets have come from " + from + ": try again in a minute", cause: errGuesses,
		wait: max(time.Second, since.Add(guessWindow).Sub(now))}
}
