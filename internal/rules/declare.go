package rules

import (
	"bytes"
	"cmp"
	"encoding/json"
	"slices"
	"time"

	"github.com/durable-worker/durable-worker/store"
)

// Orphan is who pauses schedules that no worker declares, for the audit log.
const Orphan = "orphan"

// FaultPause is how long a schedule rests whose rule cannot be evaluated.
const FaultPause = time.Minute

// Declared is the version of a schedule that the store has.
type Declared struct {
	Hash    string
	At      time.Time // when a worker last declared this hash
	Brought time.Time // when the worker that brought it had started
}

// Supersedes reports whether the version with this hash, declared now by a worker
// that started at an instant, replaces the one that is stored: it differs, and its
// worker is not older than the one that brought the stored version, or no worker
// has declared that within store.DeclaredWithin.
func Supersedes(hash string, started time.Time, known Declared, now time.Time) bool {
	return hash != known.Hash && (!started.Before(known.Brought) || now.Sub(known.At) > store.DeclaredWithin)
}

// timesPaths are the parts of a schedule's spec on which it depends when the
// schedule fires. SameTimes compares them, and so does PostgreSQL when a worker
// declares another version.
var timesPaths = [][]string{ //nolint:gochecknoglobals // a constant table
	{"rule"}, {"plan", "start"}, {"plan", "end"}, {"plan", "blackouts"}, {"plan", "spread"},
}

// TimesPaths are the parts of a spec that SameTimes compares, each a path of keys.
func TimesPaths() [][]string { return slices.Clone(timesPaths) }

// SameTimes reports whether two versions of a schedule fire at the same times: by
// the same rule, start, end, blackouts and spread. The version that replaces
// another keeps its plan then, so that an occurrence that is due, or waits, is not
// lost.
func SameTimes(a, b *store.Schedule) bool {
	one, other := a.Spec(), b.Spec()
	return !slices.ContainsFunc(timesPaths, func(path []string) bool { return !bytes.Equal(at(one, path), at(other, path)) })
}

// SameSpecTimes is SameTimes for a spec as it is stored. One that cannot be read
// fires at other times.
func SameSpecTimes(edited *store.Schedule, stored []byte) bool {
	known := store.Schedule{Name: edited.Name}
	return known.SetSpec(stored) == nil && SameTimes(edited, &known)
}

// at is what a JSON object has at a path, or nothing.
func at(text []byte, path []string) []byte {
	for _, key := range path {
		var object map[string]json.RawMessage
		if json.Unmarshal(text, &object) != nil {
			return nil
		}
		text = object[key]
	}
	return text
}

// JobCodeText is what a job's code says, as a worker declares it; nil: nothing.
func JobCodeText(code *store.JobCode) *string {
	if len(code.Aliases)+len(code.Redacted)+len(code.OnDead) == 0 {
		return nil
	}
	text, _ := json.Marshal(code) // texts always can be
	return TextOrNil(string(text))
}

// saidCode is what the code of a job says in one version of a program.
type saidCode struct {
	At   int64           `json:"at"` // when a worker last declared it, in microseconds
	Code json.RawMessage `json:"code"`
}

// JobCodeWith is what a store keeps of a job's code when a worker declares a text of
// JobCodeText, the last first; nil: nothing. What another version of the program says
// still counts if a worker has declared it within store.DeclaredWithin: an older program
// does not show what a newer one hides. PostgreSQL says the same in DeclareJobs.
func JobCodeWith(stored, declared *string, now time.Time) *string {
	var counts []saidCode
	if declared != nil {
		counts = append(counts, saidCode{At: now.UnixMicro(), Code: json.RawMessage(*declared)})
	}
	for _, known := range saidCodes(stored) {
		again := declared != nil && string(known.Code) == *declared
		if !again && now.UnixMicro()-known.At <= store.DeclaredWithin.Microseconds() {
			counts = append(counts, known)
		}
	}
	if len(counts) == 0 {
		return nil
	}
	text, _ := json.Marshal(counts) // all were read from JSON, or made by JobCodeText
	return TextOrNil(string(text))
}

// saidCodes reads what a store keeps; nil if it cannot be read.
func saidCodes(stored *string) (all []saidCode) {
	if stored == nil || json.Unmarshal([]byte(*stored), &all) != nil {
		return nil
	}
	return all
}

// JobLimits are the limits of a job's runs as a store keeps them. Of what cannot be read,
// which a change by hand or a newer program can leave, it makes a limit that no store has,
// so that no run is enqueued without the limits.
func JobLimits(stored *string) (limits []store.JobLimit) {
	if stored == nil {
		return nil
	}
	if err := json.Unmarshal([]byte(*stored), &limits); err != nil {
		return []store.JobLimit{{Default: store.LimitUse{Limit: "unreadable, " + err.Error()}}}
	}
	return limits
}

// JobCodeOf is what a store keeps of a job's code, taken together. Of what cannot be read,
// which only a change by hand can leave, everything is hidden.
func JobCodeOf(stored *string) (code store.JobCode) {
	all := saidCodes(stored)
	if stored != nil && all == nil {
		return store.JobCode{Redacted: []string{""}}
	}
	for _, said := range all {
		var one store.JobCode
		if json.Unmarshal(said.Code, &one) != nil {
			one.Redacted = []string{""}
		}
		code.Aliases = withMore(code.Aliases, one.Aliases)
		code.Redacted = withMore(code.Redacted, one.Redacted)
		code.OnDead = cmp.Or(code.OnDead, one.OnDead)
	}
	return code
}

// withMore adds the texts that are not there yet.
func withMore(all, more []string) []string {
	for _, text := range more {
		if !slices.Contains(all, text) {
			all = append(all, text)
		}
	}
	return all
}

// JobOf is the declared job of runs of a name, which may be an earlier one of the job's;
// nil: there is none.
func JobOf(jobs []store.JobInfo, name string) *store.JobInfo {
	for _, named := range []func(*store.JobInfo) bool{
		func(j *store.JobInfo) bool { return j.Name == name },
		func(j *store.JobInfo) bool { return slices.Contains(j.Code.Aliases, name) },
	} {
		for i := range jobs {
			if named(&jobs[i]) {
				return &jobs[i]
			}
		}
	}
	return nil
}
