package dashboard

import (
	"context"
	"fmt"
	"strconv"

	"github.com/durable-worker/durable-worker/lock"
	"github.com/durable-worker/durable-worker/operate"
	"github.com/durable-worker/durable-worker/store"
)

// lockList is the page of the locks.
type lockList struct {
	operate.LockList

	Forced []lock.ForceRecord
}

// locksMost bounds the locks on the page.
const locksMost = 500

func (d *dashboard) locks(ctx context.Context, _ *request) (view, error) {
	list, err := d.operator.Locks(ctx, "", locksMost)
	if err != nil {
		return view{}, err
	}
	past, err := d.operator.ForcedReleases(ctx, 20)
	if err != nil {
		return view{}, err
	}
	return view{page: "locks", title: "Locks", section: "locks", data: lockList{list, past.Forced}}, nil
}

func (d *dashboard) askLock(_ context.Context, r *request) (view, error) {
	name, slot := r.form.Get("name"), wholeNumber(r.form.Get("slot"))
	return r.ask("locks", question{To: "locks/release", Title: fmt.Sprintf("Release lock %s, slot %d?", clip(200, name), slot), Verb: "Release", Reason: true, Danger: true,
		Says: "Its holder may still be at work: it finds out at its next heartbeat. Another may take the lock immediately. What both write to is safe only where it checks the fence."},
		"name", name, "slot", strconv.Itoa(slot)), nil
}

func (d *dashboard) releaseLock(ctx context.Context, r *request) (view, error) {
	asked, err := d.askLock(ctx, r)
	if err != nil {
		return view{}, err
	}
	return r.answered(ctx, asked, "release", "locks", func(ctx context.Context) error {
		if r.form.Get("reason") == "" {
			return fmt.Errorf("%w: say why, for the audit log", store.ErrInvalid)
		}
		_, err := r.do.ReleaseLock(ctx, r.form.Get("name"), wholeNumber(r.form.Get("slot")), r.form.Get("reason"))
		return err
	})
}
