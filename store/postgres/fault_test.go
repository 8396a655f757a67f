package postgres_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"maps"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/internal/faulttest"
	"github.com/durable-worker/durable-worker/internal/pgtest"
	"github.com/durable-worker/durable-worker/store/postgres"
)

var statementName = regexp.MustCompile(`-- name: (\w+) :`)

// statementNames are all statements of the store.
func statementNames(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob("../../db/queries/*.sql")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	names := map[string]bool{}
	for _, file := range files {
		text, err := os.ReadFile(file) //nolint:gosec // of this repository
		require.NoError(t, err)
		for _, found := range statementName.FindAllStringSubmatch(string(text), -1) {
			names[found[1]] = true
		}
	}
	return slices.Sorted(maps.Keys(names))
}

// failingProxy passes connections on to a server, and gives the server another
// statement, which it refuses, in place of one that is to fail.
type failingProxy struct {
	listener net.Listener
	network  string
	address  string
	all      sync.WaitGroup

	mu    sync.Mutex
	fails string
	sent  map[string]int // statements by name
	conns []net.Conn
}

func newFailingProxy(t *testing.T, server string) *failingProxy {
	t.Helper()
	config, err := pgx.ParseConfig(server)
	require.NoError(t, err)
	p := &failingProxy{sent: map[string]int{}}
	p.network, p.address = pgNetwork(config)
	p.listener, err = net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	p.all.Go(p.accept)
	t.Cleanup(func() {
		_ = p.listener.Close()
		p.mu.Lock()
		for _, conn := range p.conns {
			_ = conn.Close()
		}
		p.mu.Unlock()
		p.all.Wait()
	})
	return p
}

// pgNetwork is where a server listens.
func pgNetwork(config *pgx.ConnConfig) (network, address string) {
	if filepath.IsAbs(config.Host) {
		return "unix", filepath.Join(config.Host, ".s.PGSQL."+strconv.Itoa(int(config.Port)))
	}
	return "tcp", net.JoinHostPort(config.Host, strconv.Itoa(int(config.Port)))
}

// url is the server's, through the proxy. Statements are sent with their text
// each time they are executed.
func (p *failingProxy) url(t *testing.T, server string) string {
	t.Helper()
	u, err := url.Parse(server)
	require.NoError(t, err)
	host, port, err := net.SplitHostPort(p.listener.Addr().String())
	require.NoError(t, err)
	query := u.Query()
	for name, value := range map[string]string{"host": host, "port": port, "sslmode": "disable", "default_query_exec_mode": "exec"} {
		query.Set(name, value)
	}
	u.RawQuery = query.Encode()
	return u.String()
}

func (p *failingProxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial(p.network, p.address)
		if err != nil {
			_ = client.Close()
			continue
		}
		p.mu.Lock()
		p.conns = append(p.conns, client, server)
		p.mu.Unlock()
		p.all.Go(func() { _, _ = io.Copy(client, server); _ = client.Close() })
		p.all.Go(func() { p.pass(client, server); _ = server.Close() })
	}
}

// pass passes messages of a client on. The first has no type.
func (p *failingProxy) pass(client io.Reader, server io.Writer) {
	for head := 4; ; head = 5 {
		start := make([]byte, head)
		if _, err := io.ReadFull(client, start); err != nil {
			return
		}
		body := make([]byte, binary.BigEndian.Uint32(start[head-4:])-4)
		if _, err := io.ReadFull(client, body); err != nil {
			return
		}
		if head == 5 {
			body = p.changed(start[0], body)
			binary.BigEndian.PutUint32(start[1:], uint32(len(body)+4)) //nolint:gosec // a message
		}
		if _, err := server.Write(slices.Concat(start, body)); err != nil {
			return
		}
	}
}

// changed is a message, or what is sent in its place.
func (p *failingProxy) changed(kind byte, body []byte) []byte {
	found := statementName.FindSubmatch(body)
	if found == nil || kind != 'P' && kind != 'Q' {
		return body
	}
	name := string(found[1])
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sent[name]++
	if name != p.fails {
		return body
	}
	end := bytes.Index(body, []byte("-- name"))
	refused := append(slices.Clone(body[:end]), "SELECT failing_statement()\x00"...)
	if kind == 'P' {
		refused = append(refused, 0, 0) // no types of parameters
	}
	return refused
}

func (p *failingProxy) fail(name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fails = name
}

// faulty is a fresh store, directly and through a proxy.
type faulty struct {
	faulttest.Subject

	proxy *failingProxy
	close func() // leaves the server its connections
}

func newFaulty(t *testing.T, server string) *faulty {
	t.Helper()
	sound := openFresh(t, server)
	proxy := newFailingProxy(t, sound.url)
	address := proxy.url(t, sound.url)
	through, err := postgres.Open(t.Context(), address, postgres.Config{Schema: sound.schema, MaxConns: 4})
	require.NoError(t, err)
	t.Cleanup(through.Close)
	users, err := pgxpool.New(t.Context(), address)
	require.NoError(t, err)
	t.Cleanup(users.Close)
	end := func() { through.Close(); users.Close(); sound.Close() }
	return &faulty{proxy: proxy, close: end, Subject: faulttest.Subject{
		Faulty: through, Sound: sound, Fail: proxy.fail,
		Begin: func(ctx context.Context) (faulttest.Transaction, error) {
			tx, err := users.Begin(context.WithoutCancel(ctx))
			if err != nil {
				return faulttest.Transaction{}, err
			}
			return faulttest.Transaction{Tx: through.WithTx(tx), Commit: tx.Commit, Rollback: tx.Rollback}, nil
		},
	}}
}

// faultLanes is how many statements fail concurrently, each in a store of its own:
// as many as keep the processors busy for a part of the time.
func faultLanes() int { return min(3*runtime.GOMAXPROCS(0), 12) }

// recounts is how often the statements of a worker are counted once more that has
// not sent all of them.
const recounts = 5

// TestOneStatementFails has each statement fail by itself that a worker sends:
// with few leases, and those that are sent for many with many.
func TestOneStatementFails(t *testing.T) {
	t.Parallel()
	server := pgtest.StartPrivate(t, pgtest.Options{Settings: map[string]string{"max_connections": "500"}}).URL()
	few := faulttest.PaceOf()
	many := few
	many.Leases = 80
	everything := statementNames(t)
	sentForFew, sentForMany := sentBy(t, server, few), sentBy(t, server, many)
	never := func() []string {
		return slices.DeleteFunc(slices.Clone(everything), func(name string) bool {
			return sentForFew[name] > 0 || sentForMany[name] > 0 || slices.Contains(notSent, name)
		})
	}
	for range recounts { // which statement settles depends on what ends together
		if len(never()) > 0 {
			maps.Copy(sentForFew, sentBy(t, server, few))
		}
	}
	require.Empty(t, never(), "the worker of this test does not send them: have them sent, or say in notSent that workers do not")
	var first, second []string
	for _, name := range everything {
		switch {
		case sentForFew[name] > 0:
			first = append(first, name)
		case sentForMany[name] > 0:
			second = append(second, name)
		}
	}
	t.Run("few leases", func(t *testing.T) { failAll(t, server, few, first) })
	t.Run("many leases", func(t *testing.T) { failAll(t, server, many, second) })
}

// sentBy counts the statements of workers where nothing fails.
func sentBy(t *testing.T, server string, pace faulttest.Pace) map[string]int {
	t.Helper()
	var faults []string
	for _, pace := range pace.Paces() {
		subject := newFaulty(t, server)
		if faults = faulttest.Try(t, subject.Subject, pace, "", faulttest.Stop{}); len(faults) == 0 {
			subject.proxy.mu.Lock()
			defer subject.proxy.mu.Unlock()
			return maps.Clone(subject.proxy.sent)
		}
		subject.close()
	}
	require.Empty(t, faults, "where nothing fails")
	return nil
}

func failAll(t *testing.T, server string, pace faulttest.Pace, names []string) {
	waiting := make(chan string, len(names))
	for _, name := range names {
		waiting <- name
	}
	close(waiting)
	var lanes sync.WaitGroup
	for lane := range faultLanes() { // they wait more than they work, so that -parallel is no measure
		lanes.Go(func() {
			t.Run(strconv.Itoa(lane), func(t *testing.T) { failInTurn(t, server, pace, waiting) })
		})
	}
	lanes.Wait()
}

// failInTurn has one statement after the other fail. What goes wrong has to go
// wrong at each pace, each time in a fresh store.
func failInTurn(t *testing.T, server string, pace faulttest.Pace, waiting <-chan string) {
	t.Helper()
	var subject *faulty
	for name := range waiting {
		var faults []string
		for _, pace := range pace.Paces() {
			if subject == nil {
				subject = newFaulty(t, server)
			}
			if faults = faulttest.Try(t, subject.Subject, pace, name, stops[name]); len(faults) == 0 {
				break
			}
			subject.close()
			subject = nil
		}
		for _, fault := range faults {
			t.Error(fault)
		}
	}
}
