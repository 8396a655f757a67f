package durable

import "sync"

// Process is what the workers of one process share, so that an isolated run is executed alone
// in it: if the process then crashes, no other handler can be the cause. All workers of a
// program share one, unless WorkerConfig.Process says otherwise. The zero value is ready to
// use.
type Process struct {
	mu       sync.Mutex      // guards the fields below
	workers  map[*Worker]int // those at work, and how many of their handlers have not returned
	handlers int             // that have not returned, those of workers that have ended included
	claims   int             // of runs that are not isolated, without an answer yet
	alone    *Worker         // makes room for an isolated run, or executes one: no other claims
	begun    bool            // and executes one
}

var thisProcess Process //nolint:gochecknoglobals // there is one

// join lets a worker take part until it parts.
func (p *Process) join(w *Worker) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.workers == nil {
		p.workers = map[*Worker]int{}
	}
	p.workers[w] = 0
}

// part ends what a worker takes part in. Handlers of its that have not returned
// still count.
func (p *Process) part(w *Worker) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.workers, w)
}

// enter reports whether a worker may claim runs that are not isolated. If so, it
// calls left once it knows what it was given.
func (p *Process) enter(w *Worker) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.alone != nil && p.alone != w {
		return false
	}
	p.claims++
	return true
}

func (p *Process) left() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.claims--
}

// started counts the handlers of a claim.
func (p *Process) started(c *claim, w *Worker) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.workers[w] += len(c.runs)
	p.handlers += len(c.runs)
	p.begun = p.begun || c.alone && p.alone == w
}

// returned counts handlers that have returned. When an isolated run has, others
// may claim, also while it cannot be settled.
func (p *Process) returned(w *Worker, n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.handlers -= n
	if _, works := p.workers[w]; works {
		p.workers[w] -= n
	}
	if p.begun && p.handlers == 0 {
		p.alone, p.begun = nil, false
	}
}

// reserve stops the claims of all other workers, unless one of them has
// reserved the process. Reserving twice is harmless.
func (p *Process) reserve(w *Worker) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.alone == nil {
		p.alone = w
	}
	return p.alone == w
}

// release lets other workers claim again, if it was this one that stopped them.
func (p *Process) release(w *Worker) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.alone == w {
		p.alone, p.begun = nil, false
	}
}

// stop is release by a worker that claims no more: what it executes alone
// continues alone.
func (p *Process) stop(w *Worker) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.alone == w && !p.begun {
		p.alone = nil
	}
}

// reserved reports whether another worker has reserved the process.
func (p *Process) reserved(w *Worker) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.alone != nil && p.alone != w
}

// quiet reports whether nothing executes, and nothing is about to.
func (p *Process) quiet() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.handlers == 0 && p.claims == 0
}

// stuck reports whether there are handlers that no worker waits for any more: they
// were given up, or their worker has ended without them.
func (p *Process) stuck() bool {
	p.mu.Lock()
	orphans := p.handlers
	workers := make([]*Worker, 0, len(p.workers))
	for w, n := range p.workers {
		orphans -= n
		workers = append(workers, w)
	}
	p.mu.Unlock()
	for _, w := range workers {
		if w.inFlight.hasStuck() {
			return true
		}
	}
	return orphans > 0
}

// atWork returns the workers that take part.
func (p *Process) atWork() []*Worker {
	p.mu.Lock()
	defer p.mu.Unlock()
	workers := make([]*Worker, 0, len(p.workers))
	for w := range p.workers {
		workers = append(workers, w)
	}
	return workers
}
