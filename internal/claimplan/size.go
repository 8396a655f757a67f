package claimplan

import (
	"github.com/durable-worker/durable-worker/store"
)

// batchSizer bounds how many runs a claim asks for, so that their args together
// stay below a number of bytes. How large args are is known only once they are
// here: until the first are, they are taken to be as large as they may be, and
// after that as large as lately. A claim that fails halves what the next one asks
// for, until claims come back full and quickly.
type batchSizer struct {
	most    int // bytes
	average int // of the args of a run, lately; at least 1 once anything is known
	runs    int // asked for at most, since a claim has failed; zero: no bound
}

// Size lowers n to what the next claim may ask for; at least 1.
func (p *Plan) Size(n int) int {
	a := &p.sizer
	average := a.average
	if average == 0 {
		average = store.MaxArgsSize
	}
	n = min(n, max(a.most/average, 1))
	if a.runs > 0 {
		n = min(n, a.runs)
	}
	return n
}

// ClaimFailed records that a claim of so many runs had no answer.
func (p *Plan) ClaimFailed(asked int) { p.sizer.runs = max(asked/2, 1) }

// ClaimWasQuick records that a claim that got so many runs had a quick answer.
func (p *Plan) ClaimWasQuick(got int) {
	a := &p.sizer
	if got < a.runs || got == 0 {
		return
	}
	if a.runs *= 2; a.runs > enoughRuns {
		a.runs = 0
	}
}

// learn records what a claim has brought: the estimate rises immediately and
// decays slowly.
func (a *batchSizer) learn(runs []store.ClaimedRun) {
	if len(runs) == 0 {
		return
	}
	total := 0
	for i := range runs {
		total += len(runs[i].Args)
	}
	average := total/len(runs) + 1
	a.average = max(average, (3*a.average+average)/4)
}

// enoughRuns is where a bound on runs is no bound any more.
const enoughRuns = 1 << 20
