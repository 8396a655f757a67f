package durablecmd

import (
	"errors"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/caarlos0/env/v11"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/internal/otlp"
	"github.com/durable-worker/durable-worker/lease"
)

// Config is the validated configuration of a program, read from the environment.
type Config struct {
	DatabaseURL       string        `env:"DURABLE_DATABASE_URL" envDefault:"sqlite:durable.db"`
	Schema            string        `env:"DURABLE_SCHEMA" envDefault:"durable"`
	DatabaseMaxConns  int           `env:"DURABLE_DATABASE_MAX_CONNS"` // 0: by need
	RedisURL          string        `env:"DURABLE_REDIS_URL"`          // empty: locks are kept in the database
	WorkerName        string        `env:"DURABLE_WORKER_NAME"`
	Queues            queueList     `env:"DURABLE_QUEUES" envDefault:"default"`
	MaxConcurrent     int           `env:"DURABLE_MAX_CONCURRENT_RUNS" envDefault:"100"`
	ClaimBatchSize    int           `env:"DURABLE_CLAIM_BATCH_SIZE"`
	ClaimBatchBytes   int           `env:"DURABLE_CLAIM_BATCH_BYTES" envDefault:"16777216"`
	PollInterval      time.Duration `env:"DURABLE_POLL_INTERVAL" envDefault:"5s"`
	PollJitter        float64       `env:"DURABLE_POLL_JITTER_RATIO" envDefault:"0.2"`
	Notify            bool          `env:"DURABLE_NOTIFY" envDefault:"true"`
	LeaseDuration     time.Duration `env:"DURABLE_LEASE_DURATION" envDefault:"30s"`
	Heartbeat         time.Duration `env:"DURABLE_HEARTBEAT_INTERVAL"`
	RetryDelay        time.Duration `env:"DURABLE_RETRY_DELAY" envDefault:"5s"`
	RetryDelayMax     time.Duration `env:"DURABLE_RETRY_DELAY_MAX" envDefault:"1h"`
	RetryJitter       float64       `env:"DURABLE_RETRY_JITTER_RATIO" envDefault:"0.2"`
	MaxCrashes        int           `env:"DURABLE_MAX_CRASHES" envDefault:"4"`
	Retention         retention     `env:"DURABLE_RETENTION" envDefault:"24h"`
	RetentionDead     retention     `env:"DURABLE_RETENTION_DEAD" envDefault:"168h"`
	RetentionAudit    retention     `env:"DURABLE_RETENTION_AUDIT" envDefault:"2160h"`
	SweepInterval     time.Duration `env:"DURABLE_SWEEP_INTERVAL" envDefault:"1m"`
	DrainTimeout      time.Duration `env:"DURABLE_DRAIN_TIMEOUT" envDefault:"10s"`
	CancelGrace       time.Duration `env:"DURABLE_CANCEL_GRACE" envDefault:"5s"`
	HTTPAddr          string        `env:"DURABLE_HTTP_ADDR" envDefault:"127.0.0.1:8080"` // "off": none
	Migrate           bool          `env:"DURABLE_MIGRATE" envDefault:"true"`
	BuiltinJobs       string        `env:"DURABLE_BUILTIN_JOBS" envDefault:"http,exec,log,sleep"`
	HTTPRefusePrivate bool          `env:"DURABLE_HTTP_JOB_REFUSE_PRIVATE"`
	HTTPJobAllow      string        `env:"DURABLE_HTTP_JOB_ALLOW"` // empty: the job http may post nowhere
	ExecAllow         string        `env:"DURABLE_EXEC_ALLOW"`     // empty: the job exec may start nothing
	LogLevel          string        `env:"DURABLE_LOG_LEVEL" envDefault:"info"`
	LogFormat         string        `env:"DURABLE_LOG_FORMAT"`
	TraceDetail       string        `env:"DURABLE_TRACE_DETAIL"` // empty: neither calls nor errors

	DashboardAddr          string `env:"DURABLE_DASHBOARD_ADDR"` // empty: none, and the command dashboard's default
	DashboardToken         string `env:"DURABLE_DASHBOARD_TOKEN"`
	DashboardTokenFile     string `env:"DURABLE_DASHBOARD_TOKEN_FILE"`
	DashboardViewer        string `env:"DURABLE_DASHBOARD_VIEWER_TOKEN"`
	DashboardViewerFile    string `env:"DURABLE_DASHBOARD_VIEWER_TOKEN_FILE"`
	DashboardHosts         string `env:"DURABLE_DASHBOARD_HOSTS"`
	DashboardUserHeader    string `env:"DURABLE_DASHBOARD_USER_HEADER"`
	DashboardGroupsHeader  string `env:"DURABLE_DASHBOARD_GROUPS_HEADER"`
	DashboardOperators     string `env:"DURABLE_DASHBOARD_OPERATORS"`
	DashboardOperatorsOf   string `env:"DURABLE_DASHBOARD_OPERATOR_GROUPS"`
	DashboardProxySecret   string `env:"DURABLE_DASHBOARD_PROXY_SECRET"`
	DashboardProxySecretIn string `env:"DURABLE_DASHBOARD_PROXY_SECRET_FILE"`
	DashboardCert          string `env:"DURABLE_DASHBOARD_TLS_CERT"`
	DashboardKey           string `env:"DURABLE_DASHBOARD_TLS_KEY"`

	Redact         string `env:"DURABLE_REDACT"` // empty: nothing is hidden
	DashboardArgs  string `env:"DURABLE_DASHBOARD_ARGS" envDefault:"operator"`
	DashboardTexts string `env:"DURABLE_DASHBOARD_TEXTS" envDefault:"viewer"`

	EventsURL        string `env:"DURABLE_EVENTS_WEBHOOK_URL"` // empty: no events are sent
	EventsSecret     string `env:"DURABLE_EVENTS_WEBHOOK_SECRET"`
	EventsSecretFile string `env:"DURABLE_EVENTS_WEBHOOK_SECRET_FILE"`
	Events           string `env:"DURABLE_EVENTS" envDefault:"run.dead,run.reclaimed,run.stuck,worker.started,worker.stopped"`
	EventsErrors     bool   `env:"DURABLE_EVENTS_ERRORS"`

	given map[string]bool // variables that the environment sets

	traces      *otlp.Settings // of the variables OTEL_*; nil: no span is exported
	tracesFault error          // what is wrong with them
}

// The words of DURABLE_TRACE_DETAIL.
const (
	traceCalls  = "calls"
	traceErrors = "errors"
)

// details reports whether DURABLE_TRACE_DETAIL has a word.
func (c Config) details(word string) bool { return slices.Contains(listed(c.TraceDetail), word) }

// listed are the words of a list, without blanks.
func listed(list string) []string {
	all := strings.Split(list, ",")
	for i, word := range all {
		all[i] = strings.TrimSpace(word)
	}
	return all
}

// Worker is the worker's part of the configuration. The library reads a zero as "the
// default", so what is switched off here becomes negative there.
func (c Config) Worker() durable.WorkerConfig {
	return durable.WorkerConfig{
		Name: c.WorkerName, Queues: c.Queues.queues, MaxConcurrentRuns: c.MaxConcurrent,
		ClaimBatchSize: c.ClaimBatchSize, ClaimBatchBytes: c.ClaimBatchBytes,
		PollInterval: c.PollInterval, PollJitter: offIfZero(c.PollJitter), NoListen: !c.Notify, Terms: lease.Terms{Duration: c.LeaseDuration, Heartbeat: c.Heartbeat},
		Retry:        durable.Exponential(c.RetryDelay, c.RetryDelayMax).WithJitter(c.RetryJitter),
		DrainTimeout: offIfZero(c.DrainTimeout), CancelGrace: offIfZero(c.CancelGrace), MaxCrashes: c.MaxCrashes,
		Retention: time.Duration(c.Retention), RetentionDead: time.Duration(c.RetentionDead), RetentionAudit: time.Duration(c.RetentionAudit), SweepInterval: c.SweepInterval,
	}
}

func offIfZero[T float64 | time.Duration](value T) T {
	if value == 0 {
		return -1
	}
	return value
}

// invalidVariable is one variable that is wrong.
type invalidVariable struct {
	variable string
	value    string // as given; empty for secrets
	want     string
}

// configError names every variable that is wrong, each with what was wanted.
type configError struct {
	variables []invalidVariable
}

func (e *configError) Error() string {
	lines := make([]string, 0, len(e.variables)+1)
	if n := len(e.variables); n > 1 {
		lines = append(lines, fmt.Sprintf("%d variables are invalid:", n))
	}
	for _, o := range e.variables {
		line := o.variable
		if o.value != "" {
			line += fmt.Sprintf("=%q", o.value)
		}
		lines = append(lines, line+": "+o.want)
	}
	return strings.Join(lines, "\n  ")
}

// loadConfig reads the environment. terminal reports whether logs go to a
// terminal. The error is a *configError that names every invalid variable. The
// warnings are for variables that have no effect.
func loadConfig(environ []string, terminal bool) (c Config, warnings []string, err error) {
	set := env.ToMap(environ)
	c.traces, c.tracesFault = otlp.FromEnvironment(func(name string) string { return set[name] })
	wants := map[string]string{} // of the variables that are wrong
	unread := unreadable(env.ParseWithOptions(&c, env.Options{Environment: set}))
	c.given = map[string]bool{}
	for _, v := range variables() {
		value, isSet := set[v.name]
		c.given[v.name] = isSet
		switch {
		case isSet && value == "" && v.name != varHTTPAddr:
			wants[v.name] = "must not be empty: unset it, or want " + v.constraint
		case unread[v.name]:
			wants[v.name] = "want " + v.constraint
		}
	}
	c.complete(set, terminal)
	c.readSecrets(wants)
	bad := &configError{}
	for _, v := range variables() {
		if wants[v.name] == "" && wants[v.than] == "" && v.valid != nil && !v.valid(c) {
			wants[v.name] = v.complaint(c)
		}
		if want := wants[v.name]; want != "" {
			bad.variables = append(bad.variables, invalidVariable{variable: v.name, value: shownValue(v.name, set[v.name]), want: want})
		}
	}
	warnings = unknown(environ)
	if len(bad.variables) > 0 {
		return Config{}, warnings, bad
	}
	return c, warnings, nil
}

// complete fills in the defaults that depend on something else.
func (c *Config) complete(set map[string]string, terminal bool) {
	if !c.given[varWorkerName] {
		host, _ := os.Hostname()
		c.WorkerName = fmt.Sprintf("%s-%d", host, os.Getpid())
	}
	if !c.given[varClaimBatch] {
		c.ClaimBatchSize = c.MaxConcurrent
	}
	if !c.given[varHeartbeat] {
		c.Heartbeat = c.LeaseDuration / 3
	}
	if !c.given[varLogFormat] {
		c.LogFormat = "json"
		if terminal {
			c.LogFormat = "text"
		}
	}
	// The library reads a variable that is set but empty as not set.
	if value, isSet := set[varHTTPAddr]; isSet && value == "" {
		c.HTTPAddr = "off"
	}
}

// unreadable names the variables whose values are not of their type.
func unreadable(err error) map[string]bool {
	names := map[string]bool{}
	var all env.AggregateError
	if !errors.As(err, &all) {
		return names
	}
	fields := reflect.TypeFor[Config]()
	for _, one := range all.Errors {
		if parse, ok := errors.AsType[env.ParseError](one); ok {
			field, _ := fields.FieldByName(parse.Name)
			names[field.Tag.Get("env")] = true
		}
	}
	return names
}

// shownValue is a value as an error may repeat it.
func shownValue(name, value string) string {
	if name == varDatabaseURL || name == varRedisURL || name == varHTTPAllow || name == varEventsURL || slices.Contains(secretVariables(), name) {
		return ""
	}
	if len(value) > 100 {
		return value[:100] + "…"
	}
	return value
}
