package chaos_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/internal/pgtest"
	"github.com/durable-worker/durable-worker/store/postgres"
)

// The worker programs of earlier schemas are kept as sources, see
// scripts/keep-program.sh. Each is built and set to work beside the program of today
// on one PostgreSQL database, while the schema is migrated under it. What min_compatible
// says decides what has to happen.
func TestRollingDeploy(t *testing.T) {
	t.Parallel()
	kept, err := filepath.Glob("testdata/rolling/schema-*.tar.gz")
	require.NoError(t, err)
	require.NotEmpty(t, kept)
	today := buildRolling(t, ".")
	for _, archive := range kept {
		version, err := strconv.Atoi(regexp.MustCompile(`schema-(\d+)`).FindStringSubmatch(archive)[1])
		require.NoError(t, err)
		t.Run(fmt.Sprintf("schema %d", version), func(t *testing.T) {
			t.Parallel()
			d := newDeploy(t, buildRolling(t, unpacked(t, archive)), today)
			d.older.must("migrate")
			pgtest.Execute(t, d.url, "create table effects (name text, worker text); create table spans (name text, began_at timestamptz default clock_timestamp(), ended_at timestamptz)")
			_, wanted, oldest := d.schema()
			require.Equal(t, version, d.have(), "the archive's name")
			require.LessOrEqual(t, version, wanted)
			if version >= oldest {
				d.bothWork()
			} else {
				d.olderStops(version)
			}
		})
	}
}

// unpacked are the sources of an archive, with today's go.mod: what the tests need
// beside them is what they need anyway.
func unpacked(t *testing.T, archive string) string {
	t.Helper()
	file, err := os.Open(archive)
	require.NoError(t, err)
	defer func() { _ = file.Close() }()
	compressed, err := gzip.NewReader(file)
	require.NoError(t, err)
	root := t.TempDir()
	write := func(name string, text []byte) {
		require.True(t, filepath.IsLocal(name), name)
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(root, name)), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(root, name), text, 0o600))
	}
	for files := tar.NewReader(compressed); ; {
		header, err := files.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
		text, err := io.ReadAll(files)
		require.NoError(t, err)
		write(header.Name, text)
	}
	for _, name := range []string{"go.mod", "go.sum"} {
		text, err := os.ReadFile(filepath.Join("..", "..", name))
		require.NoError(t, err)
		write(name, text)
	}
	return filepath.Join(root, "internal", "chaos")
}

// buildRolling builds the program whose sources are below a directory.
func buildRolling(t *testing.T, dir string) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "rolling")
	build := exec.Command("go", "build", "-trimpath", "-o", program, "./rolling") //nolint:gosec // a file of this test
	build.Dir = dir
	build.Env = append(os.Environ(), "GOPROXY=off", "GOWORK=off", "CGO_ENABLED=0")
	output, err := build.CombinedOutput()
	require.NoError(t, err, "%s", output)
	return program
}

// deploy is a database and two programs.
type deploy struct {
	t            *testing.T
	url, gate    string
	older, newer rollingProgram
	conn         *pgx.Conn
}

func newDeploy(t *testing.T, older, newer string) *deploy {
	t.Helper()
	d := &deploy{t: t, url: pgtest.Database(t), gate: filepath.Join(t.TempDir(), "gate")}
	d.older, d.newer = rollingProgram{d, older}, rollingProgram{d, newer}
	var err error
	d.conn, err = pgx.Connect(t.Context(), d.url)
	require.NoError(t, err)
	t.Cleanup(func() { _ = d.conn.Close(context.Background()) })
	return d
}

// schema is what the database has, and what the program of today says of its own.
func (d *deploy) schema() (have, wanted, oldest int) {
	d.t.Helper()
	texts := regexp.MustCompile(`\((\d+), (\d+)\)\non conflict`).FindAllStringSubmatch(postgres.MigrationsSQL("durable"), -1)
	require.NotEmpty(d.t, texts)
	oldest, err := strconv.Atoi(texts[len(texts)-1][2])
	require.NoError(d.t, err)
	return d.have(), len(texts), oldest
}

func (d *deploy) have() (version int) {
	d.t.Helper()
	require.NoError(d.t, d.conn.QueryRow(d.t.Context(), "select version from durable.meta").Scan(&version))
	return version
}

// number is the answer of a query that counts.
func (d *deploy) number(sql string, args ...any) (n int) {
	d.t.Helper()
	require.NoError(d.t, d.conn.QueryRow(d.t.Context(), sql, args...).Scan(&n), sql)
	return n
}

// until waits for a query to count something.
func (d *deploy) until(what, sql string, args ...any) {
	d.t.Helper()
	require.Eventually(d.t, func() bool {
		var n int
		return d.conn.QueryRow(d.t.Context(), sql, args...).Scan(&n) == nil && n > 0
	}, 2*time.Minute, 20*time.Millisecond, what)
}

// rollingProgram is one of the two programs.
type rollingProgram struct {
	d    *deploy
	path string
}

func (p rollingProgram) command(args ...string) *exec.Cmd {
	command := exec.Command(p.path, args...) //nolint:gosec // built by this test
	command.Env = append(os.Environ(), "ROLLING_URL="+p.d.url, "ROLLING_UNTIL="+p.d.gate)
	return command
}

func (p rollingProgram) must(args ...string) {
	p.d.t.Helper()
	output, err := p.command(args...).CombinedOutput()
	require.NoError(p.d.t, err, "%s", output)
}

// process is a worker of one of the programs.
type rollingProcess struct {
	t    *testing.T
	cmd  *exec.Cmd
	done chan error
	mu   sync.Mutex
	text bytes.Buffer
}

func (p rollingProgram) work(name string) *rollingProcess {
	p.d.t.Helper()
	process := &rollingProcess{t: p.d.t, cmd: p.command("work", name), done: make(chan error, 1)}
	process.cmd.Stdout, process.cmd.Stderr = process, process
	require.NoError(p.d.t, process.cmd.Start())
	ended := make(chan struct{})
	go func() { defer close(ended); process.done <- process.cmd.Wait() }()
	p.d.t.Cleanup(func() {
		_ = process.cmd.Process.Kill()
		<-ended
		if p.d.t.Failed() {
			p.d.t.Logf("output of %s:\n%s", name, process.output())
		}
	})
	return process
}

func (p *rollingProcess) Write(text []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.text.Write(text)
}

func (p *rollingProcess) output() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.text.String()
}

// says waits until the last line of the output matches.
func (p *rollingProcess) says(pattern string) {
	p.t.Helper()
	wanted := regexp.MustCompile(pattern)
	require.Eventually(p.t, func() bool {
		lines := strings.Split(strings.TrimSpace(p.output()), "\n")
		return wanted.MatchString(lines[len(lines)-1])
	}, 2*time.Minute, 20*time.Millisecond, pattern)
}

func (p *rollingProcess) kill() {
	p.t.Helper()
	require.NoError(p.t, p.cmd.Process.Kill())
	require.Error(p.t, <-p.done)
}

// stop ends a worker as a deploy does. It drains, and exits with 0.
func (p *rollingProcess) stop() {
	p.t.Helper()
	require.NoError(p.t, p.cmd.Process.Signal(syscall.SIGTERM))
	select {
	case err := <-p.done:
		require.NoError(p.t, err, p.output())
	case <-time.After(time.Minute):
		p.t.Fatal("it does not stop")
	}
	require.Contains(p.t, p.output(), "stopped")
}

// bothWork is a deploy that need not stop anything: the schema is migrated under the
// older worker, both enqueue, claim, take over from a killed worker of the other
// version, and settle. Every run succeeds, and has its effect exactly once.
func (d *deploy) bothWork() {
	t := d.t
	d.older.must("enqueue", "before")
	older := d.older.work("older")
	older.says("^ready true")
	d.until("the older worker has begun", "select count(*) from effects where worker = 'older'")
	d.newer.must("migrate")
	newer := d.newer.work("newer")
	newer.says("^ready true, misfit \"\"$")
	d.older.must("enqueue", "older")
	d.newer.must("enqueue", "newer")
	d.older.must("limited", "older")
	d.newer.must("limited", "newer")
	d.until("both execute runs that wait", `select (count(distinct r.worker) = 2)::int from durable.runs r
		join durable.lanes l on l.id = r.lane where l.job = 'hold' and r.state = 1`)

	older.kill()
	d.until("the newer worker has taken over", "select count(*) from durable.runs r join durable.workers w on w.id = r.worker where r.state = 1 and r.crash_count > 0 and w.name = 'newer'")
	again := d.older.work("older again")
	again.says("^ready true")
	newer.kill()
	d.until("the older worker has reclaimed what the newer one had", "select (count(*) = 0)::int from durable.runs r join durable.workers w on w.id = r.worker where r.state = 1 and w.name = 'newer'")
	last := d.newer.work("newer again")
	last.says("^ready true, misfit \"\"$")
	d.older.must("enqueue", "last") // while the run with the unique key has not ended
	require.NoError(t, os.WriteFile(d.gate, nil, 0o600))
	d.until("everything has ended", "select (count(*) = 0)::int from durable.runs where state < 2 and schedule is null")
	again.stop()
	last.stop()
	d.exactlyOnce([]string{"before", "older", "newer", "last"}, "older", "newer", "older again", "newer again")
	require.Zero(t, d.number(attempts("l.job <> 'flaky' and r.attempt > 1")), "a worker that was killed is no attempt")
}

// exactlyOnce wants every run to have succeeded, and each effect to be there once.
func (d *deploy) exactlyOnce(prefixes []string, workers ...string) {
	t := d.t
	const perPrefix = 20 + 20 + 20 + 3 // note, its child, flaky, hold
	limited := d.number("select count(distinct name) from spans")
	require.Zero(t, d.number("select count(*) from durable.runs where schedule is null and state <> 2"), "a run has not succeeded")
	runs := d.number("select count(*) from durable.runs where schedule is null")
	require.Equal(t, len(prefixes)*perPrefix+1+limited, runs, "and one for all that share the unique key")
	require.Equal(t, runs, d.number("select count(*) from effects where name <> 'tick'"))
	require.Equal(t, runs, d.number("select count(distinct name) from effects where name <> 'tick'"))
	require.Equal(t, len(prefixes)*20, d.number(attempts("l.job = 'flaky' and r.attempt = 2")), "each run of flaky was retried once")
	require.Equal(t, d.number("select count(*) from durable.runs where schedule is not null and state = 2"), d.number("select count(*) from effects where name = 'tick'"))
	require.Zero(t, d.number("select count(*) from (select occurrence from durable.runs where schedule is not null group by occurrence having count(*) > 1) twice"))
	for _, worker := range workers {
		require.NotZero(t, d.number("select count(*) from effects where worker = $1", worker), worker)
	}
	// A kept program ends every span of a run's name: that of an attempt whose worker was
	// killed too. The last one of each is true.
	require.LessOrEqual(t, d.number(`with last as (select distinct on (name) * from spans where ended_at is not null order by name, began_at desc)
		select coalesce(max(n), 0) from (
		select count(*) as n from last a join last b on a.began_at >= b.began_at and a.began_at < b.ended_at group by a.name) overlapping`), 2,
		"the limit holds over both")
}

func attempts(which string) string {
	return "select count(*) from durable.runs r join durable.lanes l on l.id = r.lane where " + which
}

// olderStops is a deploy to a schema that the older program cannot serve. Its worker
// says so, begins nothing, keeps nothing from the newer ones, and stops cleanly. Only a
// handler whose transaction the older program refuses by then spends an attempt.
func (d *deploy) olderStops(version int) {
	t := d.t
	d.older.must("enqueue", "before")
	older := d.older.work("older")
	d.until("the older worker has begun", "select count(*) from durable.runs r join durable.lanes l on l.id = r.lane where l.job = 'hold' and r.state = 1")
	d.newer.must("migrate")
	have := strconv.Itoa(version) // the words are those of the kept program
	older.says(`^ready false, misfit ".*(programs below version \d+ cannot serve, and this one has ` + have + `|requires program version \d+ or later \(this is ` + have + `\))`)
	output, err := d.older.command("enqueue", "refused").CombinedOutput()
	require.Error(t, err)
	require.Regexp(t, "deploy a newer one|upgrade the program", string(output))
	began := d.number("select count(*) from effects where worker = 'older'")

	d.newer.must("enqueue", "newer")
	newer := d.newer.work("newer")
	if version < 9 {
		newer.says("^ready true, misfit \"\", limit pair: .*worker older is alive and does not know limits")
	}
	d.until("the newer worker executes what is new", "select (count(*) = 40)::int from effects where name like 'newer-%' and name not like '%flaky%' and worker = 'newer'")
	require.Equal(t, began, d.number("select count(*) from effects where worker = 'older'"), "the older worker begins nothing")
	require.NoError(t, os.WriteFile(d.gate, nil, 0o600))
	older.stop()
	pgtest.Execute(t, d.url, "update durable.workers set reported_at = reported_at - interval '2 minutes' where name = 'older'") // so much later
	newer.says("^ready true, misfit \"\"$")                                                                                      // nothing is in the way of its limit, and it declares it by itself
	newest := d.newer.work("newest")
	newest.says("^ready true, misfit \"\"$")
	d.newer.must("limited", "newer")
	d.until("everything has ended", "select (count(*) = 0)::int from durable.runs where state < 2 and schedule is null")
	newer.stop()
	newest.stop()
	d.exactlyOnce([]string{"before", "newer"}, "newer", "newest")
	require.Equal(t, 20, d.number("select count(distinct name) from spans"), "the runs of the limit too")
}
