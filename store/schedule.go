package store

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/durable-worker/durable-worker/internal/storable"
)

// Rule says when a schedule fires. Make it with Cron, Every or Once.
type Rule struct {
	Cron   string    `json:"cron,omitempty"`  // 5 or 6 fields, or a word such as @daily
	Zone   string    `json:"zone,omitempty"`  // IANA name; empty means UTC
	Every  Duration  `json:"every,omitempty"` // an interval
	Anchor time.Time `json:"anchor,omitzero"` // of the interval; the zero time: 1970-01-01T00:00:00Z
	Once   time.Time `json:"once,omitzero"`   // a single instant
}

// Cron fires at the wall-clock times of a cron expression of five fields
// (minute hour day month weekday) or six (a second first), or of a word such
// as @daily, in an IANA time zone ("" is UTC).
//
// An expression that names times of day fires once for each: at the first of
// two instants when the clock is set back, and at the first valid instant when
// it is set forward; times that fall into one gap are one. Where day and weekday
// are both given, either will do, and */2 counts as given, other than in crontab.
// An expression that repeats within the day, because its second,
// minute or hour has * or a step such as */15, fires at every instant whose
// wall time matches, so that its rhythm continues.
func Cron(expression, zone string) Rule { return Rule{Cron: expression, Zone: zone} }

// Every fires at each multiple of d since 1970-01-01T00:00:00Z, at least one
// second. It does not drift and does not depend on when a worker started.
func Every(d time.Duration) Rule { return Rule{Every: Duration(d)} }

// Once fires at one instant. When no worker was running then, the run is
// created as soon as one is, unless CatchUp says otherwise, if it was declared
// before that instant.
func Once(t time.Time) Rule { return Rule{Once: t.UTC()} }

// From anchors an interval: it fires at whole intervals before and after t.
func (r Rule) From(t time.Time) Rule { r.Anchor = t.UTC(); return r }

// In names the zone in which the blackouts of an interval hold.
func (r Rule) In(zone string) Rule { r.Zone = zone; return r }

// Plan is what a schedule does about missed and overlapping occurrences, and
// when it does not fire. The zero value is the default of each part.
type Plan struct {
	CatchUp       CatchUpPolicy `json:"catch_up,omitempty"`
	CatchUpWithin Duration      `json:"catch_up_within,omitempty"` // older missed occurrences are skipped; zero: no bound
	CatchUpMost   int           `json:"catch_up_most,omitempty"`   // the latest so many; zero: MaxCatchUp
	Overlap       OverlapPolicy `json:"overlap,omitempty"`
	MaxUnfinished int           `json:"max_unfinished,omitempty"` // runs that may be unfinished before Overlap counts; zero: 1
	Start         time.Time     `json:"start,omitzero"`
	End           time.Time     `json:"end,omitzero"`
	Blackouts     []Window      `json:"blackouts,omitempty"`
	Jitter        Duration      `json:"jitter,omitempty"`
	Spread        Duration      `json:"spread,omitempty"`
}

// CatchUpPolicy says what happens to occurrences that no worker could
// materialize within a minute of their instant. Those after them that are less
// late are on time.
type CatchUpPolicy string

// The policies. The empty one is CatchUpSkip, and CatchUpLatest for Once.
const (
	CatchUpSkip   CatchUpPolicy = "skip"   // they are skipped, and recorded as missed
	CatchUpLatest CatchUpPolicy = "latest" // the last one becomes a run, unless OverlapSkip would then skip one that is on time
	CatchUpAll    CatchUpPolicy = "all"    // all become runs, within the bounds
)

// OverlapPolicy says what happens to an occurrence while an earlier run of the
// schedule has not ended, or as many as MaxUnfinished allows.
type OverlapPolicy string

// The policies. The empty one is OverlapSkip, and OverlapWait with CatchUpAll.
const (
	OverlapAllow OverlapPolicy = "allow" // it becomes a run anyway
	OverlapSkip  OverlapPolicy = "skip"  // it is skipped, and recorded as overlapping
	OverlapWait  OverlapPolicy = "wait"  // it becomes a run when the earlier one has ended
)

// MaxUnfinishedRuns bounds how many unfinished runs of one schedule are counted.
const MaxUnfinishedRuns = 1000

// MaxCatchUp bounds how many missed occurrences of a schedule become runs.
const MaxCatchUp = 1000

// Window is a time in which a schedule does not fire, in the zone of its rule.
// With Days ("sat,sun", "mon-fri", "*") it recurs each week: on those days from
// From until Until ("22:00", "06:00": until the next morning), or all day
// without them. Without Days, From and Until are dates ("2026-12-24"), both
// included, or wall times ("2026-12-24T18:00"), Until excluded.
type Window struct {
	Days  string `json:"days,omitempty"`
	From  string `json:"from,omitempty"`
	Until string `json:"until,omitempty"`
}

// Schedule is a rule that enqueues runs, as a row of the store.
type Schedule struct {
	Name        string
	Rule        Rule
	Plan        Plan
	Hash        string // of the rule, the plan and the run as the code declares them; empty: an operator's own
	Generation  int64  // rises with each change of the rule; part of an occurrence's identity
	Job         string
	Queue       string
	Priority    int
	Args        []byte
	MaxAttempts int
	Timeout     time.Duration
	OnCrash     CrashPolicy
	Tags        []string
	Metadata    Metadata   // of its runs
	Limits      []LimitUse // of its runs
	Paused      bool       // declared: paused at first. Stored: it does not fire
	NextAt      time.Time  // the next occurrence; the zero time: not planned yet

	// Waiting is not zero while the occurrence at NextAt waits for an earlier
	// run to end, and is then the last pause between two evaluations. EvaluateAt is
	// when the schedule was due to be evaluated again; before it has a NextAt, when
	// it was created, got its times or was resumed: it is planned from then on.
	Waiting    time.Duration
	EvaluateAt time.Time
	// Unfinished is how many of its runs have not ended, at least as far as it
	// takes to decide whether there is room for another; read after the schedule
	// was locked, so that no other can have been added.
	Unfinished int
}

// Decision is what happens to one due schedule.
type Decision struct {
	Occurrences []Occurrence  // to materialize now, oldest first
	Skips       []Skip        // to record
	NextAt      time.Time     // the next one; the zero time: never again
	Waiting     time.Duration // not zero: the one at NextAt waits; evaluate again after this time
	Fault       string        // why the rule cannot be evaluated; the schedule is then evaluated again after a minute
}

// Occurrence is one due instant of a schedule and the run it becomes. Its
// identity in the store is (schedule, generation, key).
type Occurrence struct {
	Key string
	At  time.Time // that the rule names, before spread and jitter, in the schedule's zone; the zero time: not known
	Run NewRun
}

// Skip is occurrences in a row, the first and the last included, that did not
// become runs.
type Skip struct {
	Reason SkipReason `json:"reason"`
	First  time.Time  `json:"first"`
	Last   time.Time  `json:"last"`
}

// SkipReason says why occurrences did not become runs.
type SkipReason string

// The reasons.
const (
	SkipMissed  SkipReason = "missed"  // no worker was there, and the catch-up policy left them out
	SkipOverlap SkipReason = "overlap" // an earlier run had not ended

	// SkipChanged is for those that were due when the schedule got other times, or
	// was paused; the last instant of the skip is then that of the change.
	SkipChanged SkipReason = "changed"
)

// spec is the part of a schedule that stores keep as one JSON text.
type spec struct {
	Rule     Rule     `json:"rule"`
	Plan     Plan     `json:"plan"`
	Metadata Metadata `json:"metadata,omitempty"`
	// Limits are here in one store only, which reads them itself.
	Limits json.RawMessage `json:"limits,omitempty"`
}

// Spec returns the rule, the plan and the metadata as the JSON text that stores keep.
func (s *Schedule) Spec() []byte {
	text, _ := json.Marshal(spec{Rule: s.Rule, Plan: s.Plan, Metadata: s.Metadata}) // an instant that cannot be written is refused by CheckSchedule
	return text
}

// SetSpec reads what Spec has written. A spec with members that it does not know may
// not be evaluated without them: SetSpec sets the rest, and returns an error.
func (s *Schedule) SetSpec(text []byte) error {
	var read spec
	strict := json.NewDecoder(bytes.NewReader(text))
	strict.DisallowUnknownFields()
	err := strict.Decode(&read)
	if err != nil && json.Unmarshal(text, &read) != nil {
		read = spec{}
	}
	s.Rule, s.Plan, s.Metadata = read.Rule, read.Plan, read.Metadata
	if err != nil {
		return fmt.Errorf("spec of schedule %s: %w", s.Name, err)
	}
	return nil
}

// CheckSchedule reports everything that is wrong with a schedule, wrapped in
// ErrInvalid: its name, its rule and plan, and the run that it makes.
func CheckSchedule(s Schedule) error {
	if err := s.Faults(); err != nil {
		return fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	return nil
}

// Faults is all that is wrong with the schedule, as CheckSchedule reports it but
// not wrapped in ErrInvalid.
func (s *Schedule) Faults() error {
	faults := []error{CheckName("schedule", s.Name), s.CheckPlan()}
	if instants := s.checkInstants(); instants != nil {
		faults = append(faults, instants...)
	} else if _, err := s.Compile(); err != nil {
		faults = append(faults, err)
	}
	run := s.RunAt(time.Time{})
	if err := run.check(); err != nil {
		faults = append(faults, err)
	}
	return errors.Join(faults...)
}

// CheckPlan reports everything that is wrong with the plan, as it is or for the rule.
func (s *Schedule) CheckPlan() error {
	p := &s.Plan
	var faults []error
	refuse := func(wrong bool, format string, args ...any) {
		if wrong {
			faults = append(faults, fmt.Errorf(format, args...))
		}
	}
	const day = Duration(24 * time.Hour)
	switch p.CatchUp {
	case "", CatchUpSkip, CatchUpLatest, CatchUpAll:
	default:
		refuse(true, "catch-up %q: want skip, latest or all", storable.Clip(string(p.CatchUp), 50))
	}
	switch p.Overlap {
	case "", OverlapAllow, OverlapSkip, OverlapWait:
	default:
		refuse(true, "overlap %q: want allow, skip or wait", storable.Clip(string(p.Overlap), 50))
	}
	refuse(p.CatchUp == CatchUpAll && p.Overlap == OverlapSkip,
		"catch-up all with overlap skip would drop all missed occurrences but one: want overlap wait or allow")
	refuse(p.MaxUnfinished < 0 || p.MaxUnfinished > MaxUnfinishedRuns, "%d unfinished runs: want 1 to %d", p.MaxUnfinished, MaxUnfinishedRuns)
	refuse(p.MaxUnfinished > 0 && p.Overlap == OverlapAllow, "%d unfinished runs with overlap allow, which has no bound: want overlap skip or wait", p.MaxUnfinished)
	refuse(p.CatchUpWithin < 0, "catch-up within %v: want 0 for no bound, or more", time.Duration(p.CatchUpWithin))
	refuse(p.CatchUpMost < 0 || p.CatchUpMost > MaxCatchUp, "catch-up of the latest %d: want 1 to %d, or 0 for %d", p.CatchUpMost, MaxCatchUp, MaxCatchUp)
	most := day
	if s.Rule.Every > 0 {
		most = min(s.Rule.Every, day)
	}
	for name, d := range map[string]Duration{"jitter": p.Jitter, "spread start": p.Spread} {
		refuse(d < 0 || d > most, "%s %v: want 0 to %v, the interval or a day", name, time.Duration(d), time.Duration(most))
	}
	refuse(len(p.Blackouts) > 100, "%d blackouts: want at most 100", len(p.Blackouts))
	return errors.Join(faults...)
}

// CatchUpPolicy is the plan's policy, or the default.
func (s *Schedule) CatchUpPolicy() CatchUpPolicy {
	switch {
	case s.Plan.CatchUp != "":
		return s.Plan.CatchUp
	case !s.Rule.Once.IsZero():
		return CatchUpLatest
	default:
		return CatchUpSkip
	}
}

// OverlapPolicy is the plan's policy, or the default.
func (s *Schedule) OverlapPolicy() OverlapPolicy {
	switch {
	case s.Plan.Overlap != "":
		return s.Plan.Overlap
	case s.Plan.CatchUp == CatchUpAll:
		return OverlapWait
	default:
		return OverlapSkip
	}
}

// Full reports whether so many unfinished runs leave no room for another.
func (p *Plan) Full(unfinished int) bool { return unfinished >= max(p.MaxUnfinished, 1) }
