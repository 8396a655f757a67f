package operate

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/store"
)

// Mask is what is shown in place of a value that is hidden by rule.
const Mask = "•••"

// Redaction hides values of args, results, checkpoints, steps and inputs from all who read
// through an Operator. What is stored, and what handlers get, stays as it is. Its methods may
// be called from many goroutines; a nil Redaction hides nothing.
type Redaction struct {
	rules [][]string
}

// NewRedaction returns a Redaction of the values that paths name: members separated by
// dots, such as card.number, in any case. A * is any member, and ** before the rest any
// depth: **.token. Elements of arrays are not named: items.price is that of every item.
func NewRedaction(paths ...string) (*Redaction, error) {
	r := &Redaction{}
	for _, path := range paths {
		if err := store.CheckRedacted(path); err != nil {
			return nil, fmt.Errorf("%w: %w", store.ErrInvalid, err)
		}
		r.rules = append(r.rules, strings.Split(path, "."))
	}
	return r, nil
}

// Of returns JSON with the mask in place of what is hidden. What cannot be read is hidden
// as a whole.
func (r *Redaction) Of(text []byte) []byte {
	if r == nil || len(r.rules) == 0 || len(text) == 0 {
		return text
	}
	tree, err := treeOf(text)
	if err != nil {
		return []byte(`"` + Mask + `"`)
	}
	hidden := false
	for _, rule := range r.rules {
		tree = masked(tree, rule, &hidden)
	}
	if !hidden {
		return text
	}
	return written(tree)
}

// masked returns a tree with the mask where a rule says; it notes if there was any. Names
// match in any case, as they do when Go reads JSON: what a handler takes for the member
// "password" may be written "Password".
func masked(value any, rule []string, hidden *bool) any {
	if len(rule) == 0 {
		*hidden = true
		return Mask
	}
	switch value := value.(type) {
	case []any:
		for i := range value {
			value[i] = masked(value[i], rule, hidden)
		}
	case object:
		for i := range value {
			at, rest := &value[i], rule
			if rule[0] == "**" { // here, or deeper
				at.value, rest = masked(at.value, rule, hidden), rule[1:]
			}
			if rest[0] == "*" || strings.EqualFold(rest[0], at.name) {
				at.value = masked(at.value, rest[1:], hidden)
			}
		}
	}
	return value
}

// restored is what may be stored of JSON that was perhaps shown with masks: what is stored
// already, when nothing was changed in it. Otherwise a mask would be stored in place of
// what it hides.
func (r *Redaction) restored(given, stored []byte) ([]byte, error) {
	if r == nil || !json.Valid(given) { // what is no JSON is refused by those who store it
		return given, nil
	}
	tree, err := treeOf(given)
	if err != nil || !holdsMask(tree) {
		return given, err
	}
	if shown, err := treeOf(r.Of(stored)); err == nil && alike(shown, tree) {
		return stored, nil
	}
	return nil, fmt.Errorf("%w: the args hold %s in place of values that are hidden: write the values", store.ErrInvalid, Mask)
}

// ShowsMask reports whether JSON that an Operator has read has a mask in it.
func ShowsMask(text []byte) bool {
	tree, err := treeOf(text)
	return err == nil && holdsMask(tree)
}

func holdsMask(value any) bool {
	switch value := value.(type) {
	case string:
		return value == Mask
	case []any:
		for _, one := range value {
			if holdsMask(one) {
				return true
			}
		}
	case object:
		for i := range value {
			if holdsMask(value[i].value) {
				return true
			}
		}
	}
	return false
}

// redactions are what is hidden of the runs of each job.
type redactions struct {
	all *Redaction            // of jobs that say nothing
	own map[string]*Redaction // of the others: with what all hide
	at  time.Duration         // when the declarations were read, as elapsed time
}

// redactionsOf are the rules of a program, with what jobs say of their own runs. A job of
// which one rule cannot be read shows nothing.
func redactionsOf(all *Redaction, jobs []store.JobInfo) *redactions {
	r := &redactions{all: all, own: map[string]*Redaction{}, at: lease.Elapsed()}
	for i := range jobs {
		if len(jobs[i].Code.Redacted) == 0 {
			continue
		}
		said, err := NewRedaction(jobs[i].Code.Redacted...)
		if err != nil {
			said = &Redaction{rules: [][]string{{}}} // the value as a whole
		}
		for _, name := range jobs[i].Names() {
			r.own[name] = &Redaction{rules: slices.Concat(said.rules, r.of(name).paths())}
		}
	}
	return r
}

// paths are what is hidden; nil hides nothing.
func (r *Redaction) paths() [][]string {
	if r == nil {
		return nil
	}
	return r.rules
}

// of is what is hidden of the runs of a job.
func (r *redactions) of(job string) *Redaction {
	if own, has := r.own[job]; has {
		return own
	}
	return r.all
}

// any reports whether anything is hidden.
func (r *redactions) any() bool { return len(r.own) > 0 || len(r.all.paths()) > 0 }

// redactedFor is how long declarations are used before they are read again.
const redactedFor = time.Second

// redactions are what is hidden now: by the program, by the jobs that it has, and by what
// workers have declared of theirs. Nothing is shown where that cannot be read.
func (o *Operator) redactions(ctx context.Context) (*redactions, error) {
	if known := o.redacted.Load(); known != nil && lease.Elapsed()-known.at < redactedFor {
		return known, nil
	}
	declared, err := o.store.Jobs(ctx)
	if err != nil {
		return nil, err
	}
	read := redactionsOf(o.config.Redact, slices.Concat(o.config.Jobs, declared))
	o.redacted.Store(read)
	return read, nil
}

// Redacted is JSON of a run of a job as the Operator shows it.
func (o *Operator) Redacted(ctx context.Context, job string, text []byte) ([]byte, error) {
	rules, err := o.redactions(ctx)
	if err != nil {
		return nil, err
	}
	return rules.of(job).Of(text), nil
}
