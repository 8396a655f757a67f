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

// most bounds the things that a Set keeps. What does not fit is tried again with
// the next call.
const most = 1000

// Set holds things of one kind. The zero value is empty. Its methods may be
// called from many goroutines; instants are of one clock that never goes back.
type Set[K comparable] struct {
	mu   sync.Mutex
	kept map[K]rest
}

type rest struct {
	pause, until time.Duration
}

// Put sets a thing aside that has failed at an instant, and returns for how long.
func (s *Set[K]) Put(key K, now time.Duration) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forget(now)
	known, found := s.kept[key]
	pause := First
	if found {
		pause = min(2*known.pause, Longest)
	}
	if s.kept == nil {
		s.kept = map[K]rest{}
	}
	if found || len(s.kept) < most {
		s.kept[key] = rest{pause, now + pause}
	}
	return pause
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
// its own was over: what fails after that begins anew. s.mu is held.
func (s *Set[K]) forget(now time.Duration) {
	for key, one := range s.kept {
		if now > one.until+Longest {
			delete(s.kept, key)
		}
	}
}
