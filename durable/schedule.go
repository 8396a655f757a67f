package durable

import (
	"time"
)

// Rule says when a schedule fires. Make it with Cron or Every.
type Rule struct {
	Cron  string   `json:"cron,omitempty"` // 5 or 6 fields
	Zone  string   `json:"zone,omitempty"` // IANA name; empty means UTC
	Every Duration `json:"every,omitempty"`
}

// Cron fires at the wall-clock times of a cron expression of five fields
// (minute hour day month weekday) or six (a second first), or of a word such
// as @daily, in an IANA time zone ("" is UTC).
func Cron(expression, zone string) Rule { return Rule{Cron: expression, Zone: zone} }

// Every fires at each multiple of d since 1970-01-01T00:00:00Z, at least one
// second. It does not drift and does not depend on when a worker started.
func Every(d time.Duration) Rule { return Rule{Every: Duration(d)} }

// Schedule is a rule that enqueues runs, as a row of the store.
type Schedule struct {
	Name        string
	Rule        Rule
	Hash        string // of the rule and the run as the code declares them
	Generation  int64  // rises with each change of the rule; part of an occurrence's identity
	Job         string
	Queue       string
	Priority    int
	Args        []byte
	MaxAttempts int
	Timeout     time.Duration
	OnCrash     CrashPolicy
	Tags        []string
	NextAt      time.Time // the next occurrence; the zero time: not planned yet
}

// Decision is what becomes of one due schedule.
type Decision struct {
	Occurrences []Occurrence // to materialize now, oldest first
	NextAt      time.Time    // the next one; the zero time: never again
	Fault       string       // why the rule cannot be evaluated; the schedule is then looked at again after a minute
}

// Occurrence is one due instant of a schedule and the run it becomes. Its
// identity in the store is (schedule, generation, key).
type Occurrence struct {
	Key string
	Run NewRun
}
