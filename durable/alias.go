package durable

import (
	"fmt"
	"maps"
	"slices"

	"github.com/durable-worker/durable-worker/store"
)

// Alias gives a job the names that it had before: a worker that registers the
// job also executes the runs that are stored under those names, with this
// handler, and no run is lost by a rename. A run keeps the name under which it
// was stored: in lists, in Run.Job, and for its Codec. New runs are stored under
// the new name. A worker refuses an alias that is the name, or an alias, of
// another job registered with it.
//
// Remove the alias when no run of the old name is left. Unique keys do not follow: a key
// belongs to a job's name.
func Alias(names ...string) Option {
	names = slices.Clone(names)
	return Option{"Alias", onlyJob, func(p *policy) { p.aliases = slices.Concat(p.aliases, names) }}
}

// checkAliases reports what is wrong with the old names of a job.
func checkAliases(name string, aliases []string) []error {
	var faults []error
	for i, alias := range aliases {
		if err := store.CheckName("alias", alias); err != nil {
			faults = append(faults, err)
		}
		if alias == name {
			faults = append(faults, fmt.Errorf("alias %q is the job's own name", alias))
		}
		if slices.Contains(aliases[:i], alias) {
			faults = append(faults, fmt.Errorf("alias %q is given twice", alias))
		}
	}
	return faults
}

// registerAliases notes the old names of a job. w.mu is held.
func (w *Worker) registerAliases(name string, aliases []string) {
	for _, alias := range aliases {
		if other, taken := w.aliases[alias]; taken && other != name {
			w.faults = append(w.faults, fmt.Errorf("job %q: alias %q is also an alias of job %q", name, alias, other))
		}
		w.aliases[alias] = name
	}
}

// aliasFaults reports which old names are names of other jobs, whichever was
// registered first. w.mu is held.
func (w *Worker) aliasFaults() []error {
	var faults []error
	for _, alias := range slices.Sorted(maps.Keys(w.aliases)) {
		if _, clash := w.jobs[alias]; clash {
			faults = append(faults, fmt.Errorf("job %q: alias %q is the name of another registered job", w.aliases[alias], alias))
		}
	}
	return faults
}

// registered finds what executes the runs stored under a name.
func (w *Worker) registered(job string) registration {
	if r, direct := w.jobs[job]; direct {
		return r
	}
	return w.jobs[w.aliases[job]]
}
