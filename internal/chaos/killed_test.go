package chaos_test

import (
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/internal/pgtest"
	"github.com/durable-worker/durable-worker/store"
)

// seenWithin is how soon a fleet that was killed is seen by all who ask.
const seenWithin = 90 * time.Second

func TestAFleetThatWasKilled_IsSeenByAllWhoAsk_PostgreSQL(t *testing.T) {
	t.Parallel()
	killFleet(t, pgtest.Database(t))
}

func TestAFleetThatWasKilled_IsSeenByAllWhoAsk_SQLite(t *testing.T) {
	t.Parallel()
	killFleet(t, sqliteDSN(t))
}

// killFleet kills all workers while runs are due and others execute. The commands and the
// API, which is a process of its own, say so in time, with the intervals that workers have.
func killFleet(t *testing.T, dsn string) {
	t.Helper()
	const token = "token-of-the-operator"
	db, gate := openStore(t, dsn), filepath.Join(t.TempDir(), "gate")
	fleet := []*worker{startWorker(t, dsn, "web-1", "DURABLE_MAX_CONCURRENT_RUNS=1"), startWorker(t, dsn, "web-2", "DURABLE_MAX_CONCURRENT_RUNS=1")}
	ids := enqueueHeld(t, db, 4, gate)
	until(t, db, time.Minute, "both work", func(map[durable.State]store.Count) bool {
		return len(runningOn(t, db, "web-1")) == 1 && len(runningOn(t, db, "web-2")) == 1
	})
	address := freeAddress(t)
	pages := programOf(dsn, []string{"DURABLE_DASHBOARD_ADDR=" + address, "DURABLE_DASHBOARD_TOKEN=" + token}, "dashboard")
	require.NoError(t, pages.Start())
	t.Cleanup(func() { _ = pages.Process.Kill(); _ = pages.Wait() })
	require.Eventually(t, func() bool { return strings.HasPrefix(asked(address, token, "/runs"), "{") }, time.Minute, 100*time.Millisecond, "the API answers")
	run := ids[3].String()
	api := func() []said {
		return []said{
			{"/findings", asked(address, token, "/findings"), "0 workers alive; silent: web-"},
			{"/attention", asked(address, token, "/attention"), `"no_workers"`},
			{"/workers", asked(address, token, "/workers"), `"state":"silent"`},
			{"/explain", asked(address, token, "/runs/"+run+"/explain"), "no living worker serves job nap on queue default"},
		}
	}
	commands := func() []said {
		return []said{
			{"doctor", command(dsn, "doctor"), "0 workers alive; silent: web-"},
			{"workers list", command(dsn, "workers", "list", "--json"), `"silent"`},
			{"runs explain", command(dsn, "runs", "explain", run), "no living worker serves job nap on queue default"},
		}
	}
	for _, one := range slices.Concat(api(), commands()) {
		require.NotEmpty(t, one.text, one.who)
		require.NotContains(t, one.text, one.want, "%s, while both work", one.who)
	}
	for _, w := range fleet {
		w.signal(syscall.SIGKILL)
	}
	killed := time.Now()
	for _, ask := range []func() []said{api, commands} {
		for {
			others := slices.DeleteFunc(ask(), func(one said) bool { return strings.Contains(one.text, one.want) })
			if len(others) == 0 {
				break
			}
			require.Less(t, time.Since(killed), seenWithin, "%s does not say %q: %s", others[0].who, others[0].want, others[0].text)
			<-time.After(time.Second)
		}
	}
}

// said is what was answered to who looks for the fault, and what is to be in it.
type said struct{ who, text, want string }

// programOf is a command of the program of these tests.
func programOf(dsn string, env []string, args ...string) *exec.Cmd {
	cmd := exec.Command(os.Args[0], args...) //nolint:gosec // the test binary itself
	cmd.Env = append(append(os.Environ(), "CHAOS_WORKER=1", "GORACE=atexit_sleep_ms=0", "DURABLE_DATABASE_URL="+dsn, "DURABLE_HTTP_ADDR=off"), env...)
	return cmd
}

// command is all that a command prints.
func command(dsn string, args ...string) string {
	text, _ := programOf(dsn, nil, args...).CombinedOutput() // doctor fails, as it should
	return string(text)
}

// asked is an answer of the API.
func asked(address, token, path string) string {
	request, err := http.NewRequest(http.MethodGet, "http://"+address+"/api/v1"+path, nil) //nolint:noctx // it ends with the server
	if err != nil {
		return err.Error()
	}
	request.Header.Set("Authorization", "Bearer "+token)
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return err.Error()
	}
	defer func() { _ = answer.Body.Close() }()
	text, _ := io.ReadAll(answer.Body)
	return string(text)
}

// freeAddress is one that nothing listens at.
func freeAddress(t *testing.T) string {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, listener.Close())
	return listener.Addr().String()
}
