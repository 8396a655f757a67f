package durablecmd_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/internal/pgtest"
	"github.com/durable-worker/durable-worker/internal/redistest"
)

type diagnosis struct {
	Findings         []struct{ Name, Level, Text, Hint string }
	Warnings, Failed int
}

// level returns how bad the findings of a name are, and their texts.
func (d diagnosis) level(name string) (level, text string) {
	for _, one := range d.Findings {
		if one.Name == name {
			level, text = one.Level, text+one.Text+"\n"
		}
	}
	return level, text
}

// fine tells whether nothing is said against something.
func fine(d diagnosis, name string) bool {
	for _, one := range d.Findings {
		if one.Name == name && one.Level != "ok" {
			return false
		}
	}
	return true
}

func TestDoctorFindsASoundWorkerSound(t *testing.T) {
	t.Parallel()
	for name, env := range map[string][]string{
		"sqlite":   file(t),
		"postgres": {"DURABLE_DATABASE_URL=" + pgtest.Database(t), "DURABLE_HTTP_ADDR=off", "DURABLE_REDIS_URL=" + redistest.Socket(t).URL()},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := serve(t, env, stock)
			s.logs("worker started")
			var d diagnosis
			for range 20 { // what it says of the machine's pace is asked again, until the machine has a moment
				d = decode[diagnosis](t, execute(t, env, "doctor", "--json").stdout)
				if fine(d, "round trip") && fine(d, "notifications") && fine(d, "clock") && fine(d, "workers") {
					break
				}
			}
			for _, one := range d.Findings {
				// The servers of tests do not write to disk for real, and know superusers only.
				require.True(t, one.Level == "ok" || name == "postgres" && (one.Name == "durability" || one.Name == "role"), "%+v", one)
			}
			require.Greater(t, len(d.Findings), 10)
			text := execute(t, env, "doctor").stdout
			require.Contains(t, text, "configuration")
			require.NotContains(t, text, "%!")
			s.signal()
			require.Equal(t, 0, s.ends())
		})
	}
}

func TestDoctorSaysWhatIsWrong(t *testing.T) {
	t.Parallel()
	env := file(t)
	e := execute(t, env, "doctor", "--json")
	require.Equal(t, 1, e.code)
	d := decode[diagnosis](t, e.stdout)
	level, text := d.level("database")
	require.Equal(t, "failed", level)
	require.Contains(t, text, "there is no database yet")
	require.Equal(t, 1, d.Failed)
	require.Equal(t, "failed", decode[failure](t, e.stderr).Error.Code)

	require.Equal(t, 0, execute(t, env, "migrate", "up").code)
	require.Equal(t, 0, execute(t, env, "enqueue", "fly", "--force").code)
	e = execute(t, append(env, "DURABLE_EXEC_ALLOW=report=/nowhere/report", "DURABLE_HTTP_JOB_ALLOW=http://h", "DURABLE_POOL_INTERVAL=1s"), "doctor", "--json")
	require.Equal(t, 1, e.code, "a run is due and no worker is alive: %s", e.stderr)
	d = decode[diagnosis](t, e.stdout)
	for name, want := range map[string]string{
		"workers": "0 workers alive; 1 run due, the oldest for", "exec": "report: stat /nowhere/report", "http": "without TLS", "configuration": "DURABLE_POLL_INTERVAL",
	} {
		_, text := d.level(name)
		require.Contains(t, text, want)
	}
	require.Equal(t, 3, d.Warnings, e.stdout)
	require.Equal(t, 1, d.Failed, e.stdout)
	require.Equal(t, 2, execute(t, env, "doctor", "--timeout", "0s").code)
}

func TestDoctorNamesWhatCannotBeReached(t *testing.T) {
	t.Parallel()
	evicting := redistest.Socket(t, "maxmemory 10mb", "maxmemory-policy allkeys-lru")
	for name, c := range map[string]struct {
		env  []string
		what string
		say  string
	}{
		"configuration": {[]string{"DURABLE_DATABASE_URL=mongo://u:canary@h", "DURABLE_LEASE_DURATION=1ms"}, "configuration", "DURABLE_LEASE_DURATION"},
		"database":      {[]string{"DURABLE_DATABASE_URL=postgres://u:canary@127.0.0.1:1/app"}, "database", "connection refused"},
		"redis":         {append(file(t), "DURABLE_REDIS_URL=redis://u:canary@127.0.0.1:1"), "redis", "connection refused"},
		"eviction":      {append(file(t), "DURABLE_REDIS_URL="+evicting.URL()), "redis", "maxmemory-policy is allkeys-lru"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := execute(t, c.env, "doctor", "--json")
			require.Equal(t, 1, e.code)
			require.NotContains(t, e.stdout+e.stderr, "canary")
			level, text := decode[diagnosis](t, e.stdout).level(c.what)
			require.Equal(t, "failed", level)
			require.Contains(t, text, c.say)
			e = execute(t, c.env, "doctor")
			require.Equal(t, 1, e.code)
			require.NotContains(t, e.stdout+e.stderr, "canary")
			require.True(t, strings.Contains(e.stdout, "→ "), e.stdout)
		})
	}
}
