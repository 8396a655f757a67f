package settling

import (
	"context"
	"strconv"

	"github.com/durable-worker/durable-worker/internal/rules"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/postgres/internal/conn"
)

// unstorable replaces a text or a result that the database refused.
const unstorable = "(could not be stored)"

func anyPlain(settlements []store.Settlement) bool {
	for i := range settlements {
		for j := range settlements[i].Runs {
			if rules.Plain(&settlements[i].Runs[j].Outcome) {
				return true
			}
		}
	}
	return false
}

// settleWithoutPlain settles plain successes with the statement that settles
// everything else. What the handlers have done is done: as long as the database
// takes either statement, no run of theirs is left to its lease and executed again.
func (s *Settler) settleWithoutPlain(ctx context.Context, work []settling, refused error) error {
	for i := range work {
		work[i].general = true
	}
	err := s.settleAll(ctx, work)
	if err == nil {
		s.db.Log.Warn("the database refused to settle plain successes, settled them as it does other outcomes", "event", "settle.plain_refused", "error", refused)
	}
	return err
}

// settleEach settles run by run, so that one that the database refuses does
// not hold up the others.
func (s *Settler) settleEach(ctx context.Context, work []settling) error {
	for i := range work {
		w := &work[i]
		for j := range w.Runs {
			one := []settling{w.part(w.Runs[j], w.verdicts[j:j+1])}
			err := s.settleAll(ctx, one)
			if conn.RefusesData(err) {
				one[0].Runs[0].Outcome = withoutData(w.Runs[j].Outcome)
				err = s.settleAll(ctx, one)
			}
			if err != nil {
				return err
			}
			w.frees(&one[0])
		}
		if w.Last && !w.deferred() {
			last := []settling{{opened: w.opened, Settlement: &store.Settlement{Claim: w.Claim, Worker: w.Worker, Limited: w.Limited, Last: true, Claimed: w.Claimed}}}
			if err := s.settleAll(ctx, last); err != nil {
				return err
			}
			w.frees(&last[0])
		}
	}
	return nil
}

func withoutData(o store.Outcome) store.Outcome {
	if o.Error != "" {
		o.Error = unstorable
	}
	if o.Result != nil {
		o.Result = []byte(strconv.Quote(unstorable))
	}
	if o.Log != "" {
		o.Log = unstorable
	}
	o.Stack = ""
	return o
}
