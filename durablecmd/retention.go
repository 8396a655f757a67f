package durablecmd

import (
	"fmt"
	"strconv"
	"time"

	"github.com/durable-worker/durable-worker/store"
)

// Names of the variables of retention.
const (
	varRetention      = "DURABLE_RETENTION"
	varRetentionDead  = "DURABLE_RETENTION_DEAD"
	varRetentionAudit = "DURABLE_RETENTION_AUDIT"
	varSweepInterval  = "DURABLE_SWEEP_INTERVAL"
)

// retention is the value of DURABLE_RETENTION: a duration, or "off", which
// keeps runs forever.
type retention time.Duration

// UnmarshalText reads the value.
func (r *retention) UnmarshalText(text []byte) error {
	if string(text) == "off" {
		*r = retention(store.KeepForever)
		return nil
	}
	d, err := time.ParseDuration(string(text))
	if err == nil && d < 0 {
		return fmt.Errorf("%s is negative", strconv.Quote(string(text)))
	}
	*r = retention(d)
	return err
}

// String writes the value as UnmarshalText reads it.
func (r retention) String() string {
	if r < 0 {
		return "off"
	}
	return time.Duration(r).String()
}

func retentionVariables() []variable {
	const constraint = "a duration of 1s to 292 years; off: keep runs forever"
	valid := func(r retention) bool { return r < 0 || time.Duration(r) >= time.Second }
	return []variable{
		{name: varRetention, standard: "24h", unit: "duration", constraint: constraint,
			show:  func(c Config) string { return c.Retention.String() },
			valid: func(c Config) bool { return valid(c.Retention) }},
		{name: varRetentionDead, standard: "168h", unit: "duration", constraint: constraint,
			show:  func(c Config) string { return c.RetentionDead.String() },
			valid: func(c Config) bool { return valid(c.RetentionDead) }},
		{name: varRetentionAudit, standard: "2160h", unit: "duration", constraint: "a duration of 1s to 292 years; off: keep the audit log forever",
			show:  func(c Config) string { return c.RetentionAudit.String() },
			valid: func(c Config) bool { return valid(c.RetentionAudit) }},
		{name: varSweepInterval, standard: "1m", unit: "duration", constraint: "a duration of at least 1s and " + atMostDelay,
			show:  func(c Config) string { return c.SweepInterval.String() },
			valid: func(c Config) bool { return within(c.SweepInterval, time.Second, store.MaxDelay) }},
	}
}
