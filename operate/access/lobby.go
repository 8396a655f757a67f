package access

import (
	"context"
	"errors"
	"net/http"
	"net/netip"
	"sync"
	"time"
)

// The bounds of what is done for clients before they have said who they are: they have
// places and seconds of their own.
const (
	strangersMost = 32               // that are answered concurrently
	strangersEach = 8                // of them, of one network
	strangerReads = 5 * time.Second  // the form of its login
	strangerTakes = 10 * time.Second // its answer
	strangerBody  = 64 << 10         // bytes of a form
	asksMost      = 64               // concurrent calls of the Auth
	asksEach      = 32               // of them, for one network
	lobbyWaits    = time.Second      // for a place
)

// lobby has places for strangers. They wait for one: those who are served take
// milliseconds, so only those who take their time find it full.
type lobby struct {
	most, each int

	mu    sync.Mutex
	taken map[netip.Prefix]int
	all   int
	freed chan struct{} // closed, and made again, when a place is free
}

func newLobby(most, each int) *lobby {
	return &lobby{most: most, each: each, taken: map[netip.Prefix]int{}, freed: make(chan struct{})}
}

// enter waits for a place.
func (l *lobby) enter(r *http.Request) (*place, *Refusal) {
	from := networkOf(r)
	ctx, cancel := context.WithTimeout(r.Context(), lobbyWaits)
	defer cancel()
	for {
		freed, ok := l.take(from)
		if ok {
			return &place{leave: sync.OnceFunc(func() { l.leave(from) })}, nil
		}
		select {
		case <-freed:
		case <-ctx.Done():
			return nil, busy()
		}
	}
}

// take takes a place, or says when to try again.
func (l *lobby) take(from netip.Prefix) (freed <-chan struct{}, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.all >= l.most || l.taken[from] >= l.each {
		return l.freed, false
	}
	l.all++
	l.taken[from]++
	return nil, true
}

func (l *lobby) leave(from netip.Prefix) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all--
	if l.taken[from]--; l.taken[from] == 0 {
		delete(l.taken, from)
	}
	close(l.freed)
	l.freed = make(chan struct{})
}

// errBusy means that too many requests are being answered.
var errBusy = errors.New("busy")

// stranger answers a request whose maker is not known.
func (h *handler) stranger(w http.ResponseWriter, r *http.Request, answer func() *Refusal) *Refusal {
	place, busy := h.strangers.enter(r)
	if busy != nil {
		return busy
	}
	defer place.leave()
	defer hurry(w, r)()
	return answer()
}

// ask asks the Auth who makes a request. One of yours may have to ask others, so there are
// not many who wait for it at a time.
func (h *handler) ask(r *http.Request) (Who, error) {
	place, busy := h.asks.enter(r)
	if busy != nil {
		return Who{}, errBusy
	}
	defer place.leave()
	if t, ok := h.Auth.(timed); ok {
		return t.whoAt(r, h.Now())
	}
	return h.Auth.Who(r)
}

// hurry bounds how long a stranger may take. The server's own bounds return with the next
// request of the connection.
func hurry(w http.ResponseWriter, r *http.Request) (done func()) {
	to, now := http.NewResponseController(w), time.Now()
	_ = to.SetReadDeadline(now.Add(strangerReads)) // a server of tests, or behind other middleware, may know no deadlines
	_ = to.SetWriteDeadline(now.Add(strangerTakes))
	server, _ := r.Context().Value(http.ServerContextKey).(*http.Server)
	return func() {
		if server != nil && server.WriteTimeout == 0 { // then it sets none with the next request
			_ = to.SetWriteDeadline(time.Time{})
		}
	}
}
