// Package aside keeps what a store could not change, so that a loop that meets
// it again leaves it alone for a while and goes on with everything else.
package aside

import (
	"sync"
	"time"
)

// The pause after the first failure, which doubles with each further one, up to
// the longest.
const (
	First   = 5 * time.Second
	Longest = time.Hour
)

// Doubtful is the pause of a thing that may not be to blame, and doubts how often
// it is given that benefit: then it is First each time, though it does not grow.
const (
	Doubtful = time.Second
	doubts   = 5
)

// most bounds the things that a Set keeps. What does not fit is tried again with
// the next call.
const most = 1000

// Set holds things of one kind. The zero value is empty. Its methods may be
// called from many goroutines; instants are of one clock that never goes back.
type Set[K comparable] struct {
	mu   sync.Mutex
	kept map[K]rest
	took time.Duration // when anything was last taken; zero: nothing was yet
}

type rest struct {
	pause, until time.Duration
	failedAt     time.Duration
	doubted      int // failures in a row without blame
}

// Put sets a thing aside that has failed at an instant, and returns for how long.
func (s *Set[K]) Put(key K, now time.Duration) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forget(now)
	return s.blame(key, now)
}

// blame notes a failure of a thing that is to blame; s.mu is held.
func (s *Set[K]) blame(key K, now time.Duration) time.Duration {
	pause := First
	if known, found := s.kept[key]; found && known.pause > 0 {
		pause = min(2*known.pause, Longest)
	}
	s.keep(key, rest{pause: pause, until: now + pause, failedAt: now})
	return pause
}

// keep notes how long a thing rests; s.mu is held.
func (s *Set[K]) keep(key K, one rest) {
	if s.kept == nil {
		s.kept = map[K]rest{}
	}
	if _, found := s.kept[key]; found || len(s.kept) < most {
		s.kept[key] = one
	}
}

// Doubt is Put for a thing that has failed where nothing else was taken: the store
// may take nothing at all, so that the thing rests only for a moment, in which the
// others have their turn. It is to blame when anything was taken since it failed
// last, or when it has failed too often for the benefit of the doubt.
func (s *Set[K]) Doubt(key K, now time.Duration) (pause time.Duration, blamed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forget(now)
	known, found := s.kept[key]
	if found && s.took > known.failedAt {
		return s.blame(key, now), true
	}
	known.doubted++
	pause, blamed = Doubtful, known.doubted >= doubts
	if blamed {
		pause = First
	}
	s.keep(key, rest{pause: known.pause, until: now + pause, failedAt: now, doubted: known.doubted})
	return pause, blamed
}

// Took takes in that something was taken at an instant: what fails from then on
// does not because nothing is.
func (s *Set[K]) Took(now time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.took = now
}

// Resting returns what is to be left alone at an instant, never nil.
func (s *Set[K]) Resting(now time.Duration) []K {
	s.mu.Lock()
	defer s.mu.Unlock()
	keys := []K{}
	for key, one := range s.kept {
		if now < one.until {
			keys = append(keys, key)
		}
	}
	return keys
}

// forget drops what has not failed again for as long as the longest pause after
// its own was over, or for a minute where it was not to blame: what fails after
// that begins anew. s.mu is held.
func (s *Set[K]) forget(now time.Duration) {
	for key, one := range s.kept {
		kept := Longest
		if one.pause == 0 {
			kept = time.Minute
		}
		if now > one.until+kept {
			delete(s.kept, key)
		}
	}
}
