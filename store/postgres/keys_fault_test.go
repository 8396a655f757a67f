package postgres_test

import (
	"fmt"
	"io"
	"net"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/internal/pgtest"
	"github.com/durable-worker/durable-worker/store"
)

// scissors sits between a store and its server. Once armed it lets a number
// of bytes of the server's answers through, the rest of which it withholds, and
// then closes that connection.
type scissors struct {
	url  string
	left atomic.Int64 // bytes; negative: not armed
	cuts atomic.Int64
}

func newScissors(t *testing.T, server string) *scissors {
	t.Helper()
	config, err := pgconn.ParseConfig(server)
	require.NoError(t, err)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	u, err := url.Parse(server)
	require.NoError(t, err)
	u.Host, u.RawQuery = listener.Addr().String(), "sslmode=disable"
	s := &scissors{url: u.String()}
	s.left.Store(-1)
	var group sync.WaitGroup
	t.Cleanup(func() {
		require.NoError(t, listener.Close())
		group.Wait()
	})
	group.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			network, address := pgconn.NetworkAddress(config.Host, config.Port)
			upstream, err := net.Dial(network, address)
			if err != nil {
				t.Error(err)
				return
			}
			group.Go(func() {
				_, _ = io.Copy(upstream, client)
				_ = upstream.Close()
			})
			group.Go(func() {
				s.answer(client, upstream)
				_ = client.Close()
			})
		}
	})
	return s
}

// answer passes on what the server says until it is cut.
func (s *scissors) answer(client io.Writer, server io.Reader) {
	buffer := make([]byte, 4096)
	for {
		n, err := server.Read(buffer)
		if err != nil {
			return
		}
		if left := s.take(int64(n)); left >= 0 {
			s.cuts.Add(1)
			_, _ = client.Write(buffer[:left])
			return
		}
		if _, err := client.Write(buffer[:n]); err != nil {
			return
		}
	}
}

// take counts n bytes, and returns how many of them are the last, or that none
// are: less than nothing. Of several connections one is cut.
func (s *scissors) take(n int64) int64 {
	for {
		left := s.left.Load()
		if left < 0 || s.left.CompareAndSwap(left, max(left-n, -1)) {
			if left >= n {
				return -1
			}
			return left
		}
	}
}

// Wherever the answers to an enqueue are cut, the client's repeat makes it one
// run, executed once, also when a worker has been quicker than the repeat.
func TestKeysWhenTheAnswerIsCutAnywhere(t *testing.T) {
	t.Parallel()
	for name, option := range map[string]func(string) durable.Option{
		"unique":   durable.Unique,
		"replace":  durable.Replace,
		"debounce": func(key string) durable.Option { return durable.Debounce(key, time.Millisecond, 0) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			direct := openURL(t, pgtest.Database(t), "durable")
			cut := newScissors(t, direct.url)
			client := durable.NewClient(openURL(t, cut.url, "durable"))
			keys, executed := 0, 0
			step := int64(11)
			if name == "unique" { // a short answer: its key is new
				step = 3
			}
			for at := int64(0); cut.cuts.Load() == int64(keys); at += step {
				key := fmt.Sprint("key ", keys)
				if name != "unique" { // there is a run to replace, which is due once it is replaced
					_, err := direct.Enqueue(t.Context(), newRun(durable.Replace(key), durable.After(time.Hour), durable.Tags("first")))
					require.NoError(t, err)
				}
				cut.left.Store(at)
				stop := make(chan struct{})
				var worker sync.WaitGroup
				worker.Go(func() {
					for over := false; !over; {
						select {
						case <-stop:
							over = true
						default:
						}
						executed += drain(t, direct)[key]
					}
				})
				run := newRun(option(key), durable.Tags("second"))
				receipts, err := client.Enqueue(t.Context(), run)
				close(stop)
				worker.Wait()
				require.NoError(t, err)
				cut.left.Store(-1)
				record, err := direct.Run(t.Context(), receipts[0].ID)
				require.NoError(t, err)
				require.Equal(t, []string{"second"}, record.Tags)
				keys++
			}
			t.Logf("%d cuts, %d executed", cut.cuts.Load(), executed)
			require.Greater(t, keys, 20)
			var counts map[store.State]store.Count
			require.Eventually(t, func() bool { // the last one is due a millisecond after it was stored
				drain(t, direct)
				var err error
				counts, err = direct.Counts(t.Context())
				return err == nil && counts[store.Pending].N == 0
			}, time.Minute, 5*time.Millisecond)
			require.EqualValues(t, keys, counts[store.Succeeded].N, "%v: one for each key", counts)
			requireOnce(t, direct)
			requireConsistent(t, direct)
		})
	}
}

// drain executes what is due and returns how much of each key.
func drain(t *testing.T, db opened) map[string]int {
	done := map[string]int{}
	r, err := request(t.Context(), db, worker("w"), 10, time.Minute)
	if err != nil || len(r.Steps) == 0 {
		return done
	}
	runs, err := db.Claim(t.Context(), r)
	if err != nil || len(runs) == 0 {
		return done
	}
	if _, err := db.Settle(t.Context(), []store.Settlement{settlement(r, runs, store.Outcome{Kind: store.Success})}); err != nil {
		t.Error(err)
	}
	for _, run := range runs {
		record, err := db.Run(t.Context(), run.ID)
		if err != nil || record.Key == nil {
			t.Errorf("run %s: %v", run.ID, err)
			continue
		}
		done[*record.Key]++
	}
	return done
}

// requireOnce wants each key's second enqueue to be one run.
func requireOnce(t *testing.T, store opened) {
	t.Helper()
	rows, err := connect(t, store.url).Query(t.Context(), "select key from "+store.schema+".runs where tags = '{second}' group by key having count(*) <> 1")
	require.NoError(t, err)
	defer rows.Close()
	require.False(t, rows.Next(), "a key whose second enqueue is more than one run")
	require.NoError(t, rows.Err())
}
