package durablecmd

import (
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/internal/storable"
	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/backend"
)

// Names that more than one place knows.
const (
	varDatabaseURL = "DURABLE_DATABASE_URL"
	varMaxConns    = "DURABLE_DATABASE_MAX_CONNS"
	varRedisURL    = "DURABLE_REDIS_URL"
	varWorkerName  = "DURABLE_WORKER_NAME"
	varClaimBatch  = "DURABLE_CLAIM_BATCH_SIZE"
	varLease       = "DURABLE_LEASE_DURATION"
	varHeartbeat   = "DURABLE_HEARTBEAT_INTERVAL"
	varRetryDelay  = "DURABLE_RETRY_DELAY"
	varHTTPAddr    = "DURABLE_HTTP_ADDR"
	varHTTPAllow   = "DURABLE_HTTP_JOB_ALLOW"
	varExecAllow   = "DURABLE_EXEC_ALLOW"
	varLogLevel    = "DURABLE_LOG_LEVEL"
	varLogFormat   = "DURABLE_LOG_FORMAT"
)

// variable describes one environment variable.
type variable struct {
	name       string
	standard   string // the default, for people
	unit       string
	constraint string                // what a value must be; read after "want"
	than       string                // another variable that the constraint names
	show       func(c Config) string // the value in force
	valid      func(c Config) bool   // whether the value is valid; nil: every value of its type is
	why        func(c Config) string // what to say of an invalid value; nil: the constraint
}

// complaint says what an invalid value should be.
func (v variable) complaint(c Config) string {
	if v.why != nil {
		return v.why(c)
	}
	return "want " + v.constraint
}

// variables lists every variable in the order in which they are shown.
func variables() []variable {
	return slices.Concat(databaseVariables(), workerVariables(), leaseVariables(), retentionVariables(), programVariables(), builtinVariables(), dashboardVariables(), eventVariables())
}

func databaseVariables() []variable {
	return []variable{
		{name: varDatabaseURL, standard: "sqlite:durable.db", unit: "address", constraint: "postgres://…, sqlite:<path> or memory:",
			show:  func(c Config) string { return backend.Redact(c.DatabaseURL) },
			valid: func(c Config) bool { return backend.Check(c.DatabaseURL) == nil },
			why:   func(c Config) string { return backend.Check(c.DatabaseURL).Error() }},
		{name: "DURABLE_SCHEMA", standard: "durable", unit: "name", constraint: "1 to 48 characters of a-z, 0-9 and _, the first one not a digit (PostgreSQL)",
			show:  func(c Config) string { return c.Schema },
			valid: func(c Config) bool { return storable.Schema.MatchString(c.Schema) }},
		{name: varMaxConns, standard: "by need", unit: "connections", constraint: "a number from 2 to 1000 (PostgreSQL)",
			show: func(c Config) string {
				if c.DatabaseMaxConns == 0 {
					return "by need"
				}
				return strconv.Itoa(c.DatabaseMaxConns)
			},
			valid: func(c Config) bool { return !c.given[varMaxConns] || within(c.DatabaseMaxConns, 2, 1000) }},
		{name: varRedisURL, standard: "none: locks are kept in the database", unit: "address", constraint: "redis://…, rediss://… or unix://…, with @ # ? and / in user and password as %40 %23 %3F and %2F",
			show:  func(c Config) string { return backend.RedactRedis(c.RedisURL) },
			valid: func(c Config) bool { return c.RedisURL == "" || backend.CheckRedis(c.RedisURL) == nil }},
	}
}

func workerVariables() []variable {
	return []variable{
		{name: varWorkerName, standard: "<hostname>-<pid>", unit: "name", constraint: "1 to 128 bytes of text without control characters",
			show: func(c Config) string { return c.WorkerName },
			valid: func(c Config) bool {
				return within(len(c.WorkerName), 1, store.MaxNameLength) && utf8.ValidString(c.WorkerName) &&
					!strings.ContainsFunc(c.WorkerName, unicode.IsControl)
			}},
		{name: "DURABLE_QUEUES", standard: durable.DefaultQueue, unit: "names",
			constraint: "queue names separated by commas, each once; name=N executes at most N runs of it concurrently: default,mail=5",
			show:       func(c Config) string { return c.Queues.String() }},
		{name: "DURABLE_MAX_CONCURRENT_RUNS", standard: "100", unit: "runs", constraint: "a number from 1 to 100000",
			show:  func(c Config) string { return strconv.Itoa(c.MaxConcurrent) },
			valid: func(c Config) bool { return within(c.MaxConcurrent, 1, 100_000) }},
		{name: varClaimBatch, standard: "= DURABLE_MAX_CONCURRENT_RUNS", unit: "runs", constraint: "a number from 1 to 100000; more than DURABLE_MAX_CONCURRENT_RUNS has no effect",
			than:  "DURABLE_MAX_CONCURRENT_RUNS",
			show:  func(c Config) string { return strconv.Itoa(c.ClaimBatchSize) },
			valid: func(c Config) bool { return within(c.ClaimBatchSize, 1, 100_000) }},
		{name: "DURABLE_CLAIM_BATCH_BYTES", standard: "16777216", unit: "bytes", constraint: "a number from 1 to 1073741824",
			show:  func(c Config) string { return strconv.Itoa(c.ClaimBatchBytes) },
			valid: func(c Config) bool { return within(c.ClaimBatchBytes, 1, 1<<30) }},
		{name: "DURABLE_POLL_INTERVAL", standard: "5s", unit: "duration", constraint: "a duration such as 500ms, 5s or 1m, at least 1ms and " + atMostDelay,
			show:  func(c Config) string { return c.PollInterval.String() },
			valid: func(c Config) bool { return within(c.PollInterval, time.Millisecond, store.MaxDelay) }},
		{name: "DURABLE_POLL_JITTER_RATIO", standard: "0.2", unit: "ratio", constraint: "a number from 0 (off) to 1",
			show:  func(c Config) string { return ratio(c.PollJitter) },
			valid: func(c Config) bool { return c.PollJitter >= 0 && c.PollJitter <= 1 }},
		{name: "DURABLE_NOTIFY", standard: "true", unit: "switch", constraint: "true or false; false: only poll, and send no notifications",
			show: func(c Config) string { return strconv.FormatBool(c.Notify) }},
	}
}

func leaseVariables() []variable {
	return []variable{
		{name: varLease, standard: "30s", unit: "duration", constraint: "a duration of at least 1s and " + atMostDelay,
			show:  func(c Config) string { return c.LeaseDuration.String() },
			valid: func(c Config) bool { return within(c.LeaseDuration, lease.MinDuration, lease.MaxDuration) }},
		{name: varHeartbeat, standard: "a third of " + varLease, unit: "duration", than: varLease,
			constraint: "a duration of at least 1ms and at most half of " + varLease,
			show:       func(c Config) string { return c.Heartbeat.String() },
			valid:      func(c Config) bool { return c.Heartbeat >= time.Millisecond && c.Heartbeat <= c.LeaseDuration/2 },
			why: func(c Config) string {
				return fmt.Sprintf("want a duration of at least 1ms and at most half of %s, which is %v", varLease, c.LeaseDuration)
			}},
		{name: varRetryDelay, standard: "5s", unit: "duration", constraint: "a duration of 0 or more, " + atMostDelay,
			show:  func(c Config) string { return c.RetryDelay.String() },
			valid: func(c Config) bool { return within(c.RetryDelay, 0, store.MaxDelay) }},
		{name: "DURABLE_RETRY_DELAY_MAX", standard: "1h", unit: "duration", constraint: "a duration, at least 1ms and at least " + varRetryDelay + ", " + atMostDelay, than: varRetryDelay,
			show: func(c Config) string { return c.RetryDelayMax.String() },
			valid: func(c Config) bool {
				return within(c.RetryDelayMax, max(c.RetryDelay, time.Millisecond), store.MaxDelay)
			},
			why: func(c Config) string {
				return fmt.Sprintf("want a duration, at least 1ms and at least %s, which is %v, "+atMostDelay, varRetryDelay, c.RetryDelay)
			}},
		{name: "DURABLE_RETRY_JITTER_RATIO", standard: "0.2", unit: "ratio", constraint: "a number from 0 (off) to 1",
			show:  func(c Config) string { return ratio(c.RetryJitter) },
			valid: func(c Config) bool { return c.RetryJitter >= 0 && c.RetryJitter <= 1 }},
		{name: "DURABLE_MAX_CRASHES", standard: "4", unit: "crashes", constraint: "a number from 2 to 1000",
			show:  func(c Config) string { return strconv.Itoa(c.MaxCrashes) },
			valid: func(c Config) bool { return within(c.MaxCrashes, 2, 1000) }},
	}
}

func programVariables() []variable {
	return []variable{
		{name: "DURABLE_DRAIN_TIMEOUT", standard: "10s", unit: "duration", constraint: "a duration of 0 (none) or more, " + atMostDelay,
			show:  func(c Config) string { return c.DrainTimeout.String() },
			valid: func(c Config) bool { return within(c.DrainTimeout, 0, store.MaxDelay) }},
		{name: "DURABLE_CANCEL_GRACE", standard: "5s", unit: "duration", constraint: "a duration of 0 (none) or more, " + atMostDelay,
			show:  func(c Config) string { return c.CancelGrace.String() },
			valid: func(c Config) bool { return within(c.CancelGrace, 0, store.MaxDelay) }},
		{name: varHTTPAddr, standard: defaultHTTPAddr + ", or a free port if taken", unit: "host:port", constraint: "host:port; off or empty: no listener",
			show:  func(c Config) string { return c.HTTPAddr },
			valid: func(c Config) bool { return c.HTTPAddr == "off" || isAddr(c.HTTPAddr) }},
		{name: "DURABLE_MIGRATE", standard: "true", unit: "switch", constraint: "true or false; true: migrate the schema when the worker starts",
			show: func(c Config) string { return strconv.FormatBool(c.Migrate) }},
		{name: varLogLevel, standard: "info", unit: "word", constraint: "debug, info, warn or error",
			show:  func(c Config) string { return c.LogLevel },
			valid: func(c Config) bool { return slices.Contains([]string{"debug", "info", "warn", "error"}, c.LogLevel) }},
		{name: varLogFormat, standard: "text on a terminal, else json", unit: "word", constraint: "text or json",
			show:  func(c Config) string { return c.LogFormat },
			valid: func(c Config) bool { return c.LogFormat == "text" || c.LogFormat == "json" }},
		{name: "DURABLE_TRACE_DETAIL", standard: "none", unit: "words", constraint: "words separated by commas, of calls and errors",
			show: func(c Config) string { return c.TraceDetail },
			valid: func(c Config) bool {
				return c.TraceDetail == "" || !slices.ContainsFunc(listed(c.TraceDetail), func(w string) bool { return w != traceCalls && w != traceErrors })
			}},
	}
}

// atMostDelay is store.MaxDelay as a constraint ends with it.
const atMostDelay = "at most 876000h (100 years)"

func within[T int | time.Duration](n, least, most T) bool { return n >= least && n <= most }

func ratio(f float64) string { return strconv.FormatFloat(f, 'g', -1, 64) }

func isAddr(addr string) bool {
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		return false
	}
	n, err := strconv.Atoi(port)
	return err == nil && within(n, 0, 65535)
}

// unknown warns of variables that look like ours and mean nothing, without
// their values.
func unknown(environ []string) []string {
	known := make([]string, 0, len(variables()))
	for _, v := range variables() {
		known = append(known, v.name)
	}
	var warnings []string
	for _, pair := range environ {
		name, _, _ := strings.Cut(pair, "=")
		if !strings.HasPrefix(name, "DURABLE_") || slices.Contains(known, name) {
			continue
		}
		warning := fmt.Sprintf("%s is not a variable of this program and has no effect", name)
		if near := nearest(name, known); near != "" {
			warning += fmt.Sprintf("; did you mean %s?", near)
		}
		warnings = append(warnings, warning)
	}
	slices.Sort(warnings)
	return warnings
}

// nearest returns the word that takes the fewest edits to reach, if they are
// few for its length.
func nearest(word string, words []string) string {
	best, fewest := "", max(len(word)/6, 2)+1
	for _, w := range words {
		if d := edits(word, w); d < fewest {
			best, fewest = w, d
		}
	}
	return best
}

// edits is the Levenshtein distance in bytes.
func edits(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
