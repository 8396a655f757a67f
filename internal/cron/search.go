package cron

import (
	"context"
	"fmt"
)

// Search finds when a rule fires, in a bounded number of steps for each
// occurrence. Once one took more, or the context has ended, it finds nothing any
// more, and Err says why: before you take "nothing" for "never again", check
// Err. It is not for concurrent use.
type Search struct {
	Rule
	ctx   context.Context
	steps int // left for this occurrence
	err   error
}

// searchSteps bounds the steps to one occurrence. The longest known way is a
// clock that is set back by a whole day, with a rule that names each second of
// it.
const searchSteps = 100_000

// blackoutSteps is what a blackout that is skipped counts: of 4000 in a row,
// ten years of one a day, nothing more is expected.
const blackoutSteps = searchSteps / 4000

// heedEvery is after how many steps the context is checked.
const heedEvery = 256

// errSteps says that a search took too many steps.
var errSteps = fmt.Errorf("no next occurrence is found within %d steps", searchSteps)

// Search begins to evaluate the rule.
func (r Rule) Search(ctx context.Context) *Search { return &Search{Rule: r, ctx: ctx} }

// Err says why nothing more is found, or nil.
func (s *Search) Err() error { return s.err }

// begin starts the way to one occurrence.
func (s *Search) begin() {
	s.steps = searchSteps
	s.heed()
}

// step takes one step; false: it may not, and Err says why.
func (s *Search) step() bool {
	if s.steps--; s.steps <= 0 {
		s.fail(errSteps)
	} else if s.steps%heedEvery == 0 {
		s.heed()
	}
	return s.err == nil
}

func (s *Search) heed() {
	if s.ctx.Err() != nil {
		s.fail(context.Cause(s.ctx))
	}
}

func (s *Search) fail(err error) {
	if s.err == nil {
		s.err = err
	}
}
