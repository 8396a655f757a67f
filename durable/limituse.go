package durable

import (
	"errors"
	"fmt"
	"reflect"
	"slices"

	"github.com/durable-worker/durable-worker/internal/admit"
	"github.com/durable-worker/durable-worker/store"
)

// limitUse is a limit of a job's runs, or of one run.
type limitUse struct {
	store.LimitUse

	of       store.Limit // as NewLimit made it; of a run alone its name
	template string
	key      func(args any) string // nil where the job's code is not at hand
	keyOf    reflect.Type          // the args that key takes
	computed bool                  // the job's code computes the key
	fixed    bool                  // the key is the run's own: LimitedBy
}

// limitUses are the limits of a job's runs, or of one run.
type limitUses []limitUse

// with is the limits with one more. That of a run takes the place of its job's,
// and keeps what it does not say itself.
func (all limitUses) with(use limitUse) limitUses {
	i := slices.IndexFunc(all, func(have limitUse) bool {
		return use.fixed && store.LimitName(have.Limit) == store.LimitName(use.Limit)
	})
	if i < 0 {
		return append(slices.Clip(all), use)
	}
	all = slices.Clone(all)
	have := &all[i]
	have.Key, have.fixed = use.Key, true
	if use.Weight != 0 {
		have.Weight = use.Weight
	}
	if use.Until != 0 {
		have.Until = use.Until
	}
	if use.WhenFull != store.FullDefault {
		have.WhenFull, have.RetryAfter = use.WhenFull, use.RetryAfter
	}
	if use.Mode != 0 {
		have.Mode, have.Owner, have.OwnedFor = use.Mode, use.Owner, use.OwnedFor
	}
	return all
}

// faults reports what is wrong with the limits of a job, whose args have a type.
func (all limitUses) faults(args reflect.Type) (faults []error) {
	for i := range all {
		u := &all[i]
		faults = append(faults, store.CheckLimit(u.of))
		if u.computed && u.keyOf != args {
			faults = append(faults, fmt.Errorf("limit %q: KeyFrom takes %v, the job's args are %v", u.Limit, u.keyOf, args))
		}
		if u.computed && u.template != "" {
			faults = append(faults, fmt.Errorf("limit %q: both KeyFrom and KeyOf are given", u.Limit))
		}
		if _, err := admit.ParseTemplate(u.template); err != nil {
			faults = append(faults, fmt.Errorf("limit %q: %w", u.Limit, err))
		}
	}
	return faults
}

// of are the limits of a run with these args, as a value and as JSON.
func (all limitUses) of(args any, encoded []byte) ([]store.LimitUse, error) {
	if len(all) == 0 {
		return nil, nil
	}
	var faults []error
	uses := make([]store.LimitUse, len(all))
	for i := range all {
		u := &all[i]
		uses[i] = u.LimitUse
		switch {
		case u.fixed:
		case u.computed && u.key == nil:
			faults = append(faults, fmt.Errorf("limit %q: the job's Go code computes its key, and this program does not have that code: pass the key as %s=KEY", u.Limit, u.Limit))
		case u.computed:
			if uses[i].Key = u.key(args); uses[i].Key == "" {
				faults = append(faults, fmt.Errorf("limit %q: its key for these args is empty", u.Limit))
			}
		case u.template != "":
			key, err := keyByTemplate(u.template, encoded)
			if err != nil {
				faults = append(faults, fmt.Errorf("limit %q: %w", u.Limit, err))
			}
			uses[i].Key = key
		}
	}
	return uses, errors.Join(faults...)
}

func keyByTemplate(template string, encoded []byte) (string, error) {
	t, err := admit.ParseTemplate(template)
	if err != nil {
		return "", err
	}
	return t.Key(encoded)
}

// declared are the limits of a job's runs as a worker declares them.
func (all limitUses) declared() []store.JobLimit {
	jobs := make([]store.JobLimit, len(all))
	for i := range all {
		u := &all[i]
		jobs[i] = store.JobLimit{Default: u.LimitUse, Template: u.template, Computed: u.computed}
	}
	return jobs
}

// limitsOf are the limits that a worker has declared for a job.
func limitsOf(job store.JobInfo) limitUses {
	all := make(limitUses, len(job.Limits))
	for i, declared := range job.Limits {
		all[i] = limitUse{LimitUse: declared.Default, template: declared.Template, computed: declared.Computed}
	}
	return all
}
