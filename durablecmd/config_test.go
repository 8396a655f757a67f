package durablecmd_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/durablecmd"
)

type shown struct {
	Variables []struct {
		Name, Value, Default, Unit, Constraint string
		Set                                    bool
	}
	Faults []string
}

func TestABadValueIsNamedWithItsVariable(t *testing.T) {
	t.Parallel()
	tests := []struct{ pair, want string }{
		{"DURABLE_DATABASE_URL=mysql://root:canary@db/x", `the database scheme "mysql" is not known`},
		{"DURABLE_DATABASE_URL=sqlite:", "names no file"},
		{"DURABLE_DATABASE_URL=sqlite:canary.db/", "names a directory"},
		{"DURABLE_DATABASE_URL=canary", "no database scheme"},
		{"DURABLE_SCHEMA=Durable", "1 to 48 characters of a-z"},
		{"DURABLE_SCHEMA=1a", "1 to 48 characters of a-z"},
		{"DURABLE_SCHEMA=a;drop", "1 to 48 characters of a-z"},
		{"DURABLE_DATABASE_MAX_CONNS=1", "from 2 to 1000"},
		{"DURABLE_DATABASE_MAX_CONNS=0", "from 2 to 1000"},
		{"DURABLE_WORKER_NAME=a\nb", "control characters"},
		{"DURABLE_WORKER_NAME=" + strings.Repeat("a", 129), "1 to 128 bytes"},
		{"DURABLE_QUEUES=mail,mail", "each once"},
		{"DURABLE_QUEUES=mail=0", "queue names"},
		{"DURABLE_QUEUES=mail=-1", "queue names"},
		{"DURABLE_QUEUES=mail,", "queue names"},
		{"DURABLE_QUEUES=mail box", "queue names"},
		{"DURABLE_MAX_CONCURRENT_RUNS=0", "from 1 to 100000"},
		{"DURABLE_MAX_CONCURRENT_RUNS=100001", "from 1 to 100000"},
		{"DURABLE_MAX_CONCURRENT_RUNS=ten", "from 1 to 100000"},
		{"DURABLE_CLAIM_BATCH_SIZE=0", "from 1 to 100000"},
		{"DURABLE_CLAIM_BATCH_BYTES=0", "from 1 to 1073741824"},
		{"DURABLE_POLL_INTERVAL=5", "a duration such as"},
		{"DURABLE_POLL_INTERVAL=0s", "at least 1ms"},
		{"DURABLE_POLL_INTERVAL=-1s", "at least 1ms"},
		{"DURABLE_POLL_INTERVAL=876000h1ns", "at most 876000h (100 years)"},
		{"DURABLE_POLL_JITTER_RATIO=1.1", "from 0 (off) to 1"},
		{"DURABLE_POLL_JITTER_RATIO=NaN", "from 0 (off) to 1"},
		{"DURABLE_POLL_JITTER_RATIO=-0.1", "from 0 (off) to 1"},
		{"DURABLE_NOTIFY=maybe", "true or false"},
		{"DURABLE_LEASE_DURATION=999ms", "at least 1s"},
		{"DURABLE_LEASE_DURATION=876000h1ns", "at most 876000h (100 years)"},
		{"DURABLE_HEARTBEAT_INTERVAL=0s", "at least 1ms"},
		{"DURABLE_HEARTBEAT_INTERVAL=16s", "at most half of DURABLE_LEASE_DURATION, which is 30s"},
		{"DURABLE_RETRY_DELAY=-1s", "0 or more"},
		{"DURABLE_RETRY_DELAY=2562047h", "at most 876000h (100 years)"},
		{"DURABLE_RETRY_DELAY_MAX=2562047h", "at most 876000h (100 years)"},
		{"DURABLE_MAX_CRASHES=2147483648", "from 2 to 1000"},
		{"DURABLE_CLAIM_BATCH_SIZE=9223372036854775808", "from 1 to 100000"},
		{"DURABLE_QUEUES=mail=9223372036854775808", "queue names"},
		{"DURABLE_RETRY_DELAY_MAX=1s", "at least DURABLE_RETRY_DELAY, which is 5s"},
		{"DURABLE_RETRY_JITTER_RATIO=2", "from 0 (off) to 1"},
		{"DURABLE_MAX_CRASHES=1", "from 2 to 1000"},
		{"DURABLE_RETENTION=0s", "1s to 292 years; off: keep runs forever"},
		{"DURABLE_RETENTION=-1s", "1s to 292 years; off: keep runs forever"},
		{"DURABLE_RETENTION_DEAD=never", "1s to 292 years; off: keep runs forever"},
		{"DURABLE_SWEEP_INTERVAL=10ms", "at least 1s"},
		{"DURABLE_SWEEP_INTERVAL=2562047h", "at most 876000h (100 years)"},
		{"DURABLE_DRAIN_TIMEOUT=2562047h", "at most 876000h (100 years)"},
		{"DURABLE_DRAIN_TIMEOUT=-1s", "0 (none) or more"},
		{"DURABLE_CANCEL_GRACE=876001h", "at most 876000h (100 years)"},
		{"DURABLE_CANCEL_GRACE=soon", "0 (none) or more"},
		{"DURABLE_HTTP_ADDR=8080", "host:port"},
		{"DURABLE_HTTP_ADDR=127.0.0.1:99999", "host:port"},
		{"DURABLE_HTTP_ADDR=127.0.0.1:http:1", "host:port"},
		{"DURABLE_MIGRATE=later", "true or false"},
		{"DURABLE_LOG_LEVEL=loud", "debug, info, warn or error"},
		{"DURABLE_LOG_FORMAT=xml", "text or json"},
	}
	for _, test := range tests {
		name, _, _ := strings.Cut(test.pair, "=")
		for _, verb := range []string{"work", "config"} {
			e := execute(t, []string{test.pair}, verb)
			require.Equal(t, 2, e.code, test.pair)
			require.Contains(t, e.stderr, name, test.pair)
			require.Contains(t, e.stderr, test.want, test.pair)
			require.Equal(t, 1, strings.Count(e.stderr, "\n"), e.stderr)
			require.NotContains(t, e.stderr, "canary")
			require.Empty(t, e.stdout)
		}
	}
}

func TestEveryInvalidVariableIsNamed(t *testing.T) {
	t.Parallel()
	env := []string{
		"DURABLE_DATABASE_URL=oracle:canary", "DURABLE_SCHEMA=", "DURABLE_QUEUES==", "DURABLE_MAX_CONCURRENT_RUNS=0",
		"DURABLE_POLL_INTERVAL=x", "DURABLE_LEASE_DURATION=4s", "DURABLE_HEARTBEAT_INTERVAL=3s", "DURABLE_LOG_LEVEL=x",
	}
	e := execute(t, env, "work")
	require.Equal(t, 2, e.code)
	require.Equal(t, `durable-worker: 7 variables are invalid:
  DURABLE_DATABASE_URL: the database scheme "oracle" is not known: want postgres://…, sqlite:<path> or memory:
  DURABLE_SCHEMA: must not be empty: unset it, or want 1 to 48 characters of a-z, 0-9 and _, the first one not a digit (PostgreSQL)
  DURABLE_QUEUES="=": want queue names separated by commas, each once; name=N executes at most N runs of it concurrently: default,mail=5
  DURABLE_MAX_CONCURRENT_RUNS="0": want a number from 1 to 100000
  DURABLE_POLL_INTERVAL="x": want a duration such as 500ms, 5s or 1m, at least 1ms and at most 876000h (100 years)
  DURABLE_HEARTBEAT_INTERVAL="3s": want a duration of at least 1ms and at most half of DURABLE_LEASE_DURATION, which is 4s
  DURABLE_LOG_LEVEL="x": want debug, info, warn or error
`, e.stderr)
}

func TestASetButEmptyVariableIsAnError(t *testing.T) {
	t.Parallel()
	var all []string
	for _, v := range decode[shown](t, execute(t, nil, "config", "--json").stdout).Variables {
		all = append(all, v.Name+"=")
		e := execute(t, []string{v.Name + "="}, "config", "--json")
		if v.Name == "DURABLE_HTTP_ADDR" { // empty means none
			require.Equal(t, 0, e.code, e.stderr)
			continue
		}
		require.Equal(t, 2, e.code, v.Name)
		require.Contains(t, e.stderr, v.Name+": must not be empty")
	}
	e := execute(t, all, "work")
	require.Equal(t, 2, e.code)
	require.Equal(t, len(all)-1, strings.Count(e.stderr, "must not be empty"), e.stderr)
}

func TestConfigShowsWhatIsInForce(t *testing.T) {
	t.Parallel()
	defaults := decode[shown](t, execute(t, nil, "config", "--json").stdout)
	require.Empty(t, defaults.Faults)
	require.Len(t, defaults.Variables, 55)
	for _, v := range defaults.Variables {
		require.False(t, v.Set)
		require.NotEmpty(t, v.Unit, v.Name)
		require.NotEmpty(t, v.Constraint, v.Name)
	}
	e := execute(t, []string{
		"DURABLE_DATABASE_URL=postgres://ann:canary@db.example/app?sslmode=require", "DURABLE_QUEUES=default, mail=5",
		"DURABLE_MAX_CONCURRENT_RUNS=7", "DURABLE_LEASE_DURATION=9s", "DURABLE_DRAIN_TIMEOUT=0s", "DURABLE_HTTP_ADDR=",
		"DURABLE_RETENTION=off",
	}, "config", "--json")
	require.Equal(t, 0, e.code, e.stderr)
	require.NotContains(t, e.stdout+e.stderr, "canary")
	values := map[string]string{}
	for _, v := range decode[shown](t, e.stdout).Variables {
		values[v.Name] = v.Value
	}
	require.Equal(t, "postgres://ann@db.example:5432/app?sslmode=require", values["DURABLE_DATABASE_URL"])
	require.Equal(t, "default,mail=5", values["DURABLE_QUEUES"])
	require.Equal(t, "7", values["DURABLE_CLAIM_BATCH_SIZE"])
	require.Equal(t, "3s", values["DURABLE_HEARTBEAT_INTERVAL"])
	require.Equal(t, "0s", values["DURABLE_DRAIN_TIMEOUT"])
	require.Equal(t, "off", values["DURABLE_HTTP_ADDR"])
	require.Equal(t, "off", values["DURABLE_RETENTION"])
	require.Equal(t, "168h0m0s", values["DURABLE_RETENTION_DEAD"])

	text := execute(t, nil, "config")
	require.Equal(t, 0, text.code)
	require.Equal(t, 56, strings.Count(text.stdout, "\n"))
}

func TestAVariableThatDoesNotExistIsWarnedAbout(t *testing.T) {
	t.Parallel()
	e := execute(t, []string{"DURABLE_POOL_INTERVAL=canary", "DURABLE_MONGO_URL=canary", "DURABLELY=1"}, "config")
	require.Equal(t, 0, e.code)
	require.Contains(t, e.stderr, "DURABLE_POOL_INTERVAL is not a variable of this program and has no effect; did you mean DURABLE_POLL_INTERVAL?")
	require.Contains(t, e.stderr, "DURABLE_MONGO_URL is not a variable of this program")
	require.NotContains(t, e.stderr, "canary")
	require.NotContains(t, e.stderr, "DURABLELY")
}

func TestConfigShowsTheFaultsOfRegistrations(t *testing.T) {
	t.Parallel()
	e := executeWith(t, durablecmd.Start{Args: []string{"config", "--json"}, Setup: faulty})
	require.Equal(t, 2, e.code)
	faults := decode[shown](t, e.stdout).Faults
	require.Len(t, faults, 4, e.stdout)
	require.Contains(t, e.stderr, `"code":"invalid"`)
	require.Contains(t, e.stderr, "registered twice")

	s := serve(t, file(t), faulty)
	require.Equal(t, 2, s.ends())
	s.logs("registered twice")
}
