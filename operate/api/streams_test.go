package api_test

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/operate"
)

// mostStreams is how many streams an Operator has.
const mostStreams = 1000

// heap is what is in use, in bytes.
func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapInuse + m.StackInuse)
}

// TestManyStreamsOnOneProcess: each gets its hints, memory is bounded, the worker beside
// them keeps its leases, and one more than the bound is asked to come back. With
// DURABLE_TEST_LONG all are connections.
func TestManyStreamsOnOneProcess(t *testing.T) {
	n := 200
	if os.Getenv("DURABLE_TEST_LONG") != "" {
		n = mostStreams
	}
	b := newBench(t)
	worker, release := b.holding()
	server := httptest.NewServer(b.handler)
	t.Cleanup(server.Close)
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: -1}}
	ctx, cancel := context.WithCancel(t.Context())
	open := func() *http.Response {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL+"/events", nil)
		require.NoError(t, err)
		request.Header.Set("Authorization", "Bearer "+viewerToken)
		answer, err := client.Do(request)
		require.NoError(t, err)
		return answer
	}
	before := heap()
	changed, ended := make(chan struct{}, n), make(chan struct{}, n)
	for range n {
		answer := open() //nolint:bodyclose // its reader closes it
		require.Equal(t, 200, answer.StatusCode)
		go func() {
			defer func() { _ = answer.Body.Close(); ended <- struct{}{} }()
			notified := false
			for lines := bufio.NewScanner(answer.Body); lines.Scan(); {
				if strings.Contains(lines.Text(), `"what":["runs"]`) && !notified {
					notified = true
					changed <- struct{}{}
				}
			}
		}()
	}
	each := (heap() - before) / int64(n)
	began := time.Now()
	b.enqueue(`{}`)
	for range n {
		<-changed
	}
	took := time.Since(began)

	others := make([]*operate.Stream, mostStreams-n)
	for i := range others {
		var err error
		others[i], err = b.op.Stream()
		require.NoError(t, err)
	}
	refused := open()
	require.Equal(t, http.StatusServiceUnavailable, refused.StatusCode)
	require.NotEmpty(t, refused.Header.Get("Retry-After"))
	require.NoError(t, refused.Body.Close())
	status := worker.Status()
	t.Logf("%d streams: %d KiB each with both ends, all had the hint after %v; lag of the heartbeat %v, margin %.2f", n, each>>10, took, status.BeatLag, status.LeaseMargin)
	require.Less(t, each, int64(256<<10), "bytes of a stream, its client included")
	require.Less(t, took, 20*time.Second, "hints come about every two seconds")
	require.Greater(t, status.LeaseMargin, 0.2, "the worker's beats are in time")
	require.Less(t, status.BeatLag, 5*time.Second)

	for _, other := range others {
		other.Close()
	}
	cancel()
	for range n {
		<-ended
	}
	require.Eventually(t, func() bool { s, err := b.op.Stream(); return err == nil && closed(s) }, 10*time.Second, 10*time.Millisecond, "the places are free again")
	release()
}

// holding starts a worker that executes a run until it is released.
func (b *bench) holding() (worker *durable.Worker, release func()) {
	worker = durable.NewWorker(b.store, durable.WorkerConfig{Terms: lease.Terms{Duration: 15 * time.Second}})
	hold := make(chan struct{})
	held := durable.NewJob[map[string]any]("held")
	durable.Register(worker, held, func(context.Context, *durable.Run[map[string]any]) error { <-hold; return nil })
	b.declare(held.Info())
	b.want(201, "POST", "/runs", `{"job":"held"}`)
	stop := b.work(worker)
	return worker, func() { close(hold); stop() }
}

// pipes are connections without a buffer: what one end writes waits until the other reads.
type pipes chan net.Conn

func (p pipes) Accept() (net.Conn, error) {
	conn, more := <-p
	if !more {
		return nil, net.ErrClosed
	}
	return conn, nil
}

func (pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipes", Net: "unix"} }
func (pipes) Close() error   { return nil }

// TestClientsThatDoNotReadHinderNoOne: beside streams whose clients read the head of the
// answer and then nothing more, another stream has its hints and a worker keeps its lease.
// They lose their streams.
func TestClientsThatDoNotReadHinderNoOne(t *testing.T) {
	n := 50
	if os.Getenv("DURABLE_TEST_LONG") != "" {
		n = mostStreams - 1
	}
	b := newBench(t)
	worker, release := b.holding()
	listener := make(pipes)
	server := &http.Server{Handler: b.handler, ReadHeaderTimeout: time.Minute}
	served := make(chan error)
	go func() { served <- server.Serve(listener) }()
	for range n {
		client, end := net.Pipe()
		listener <- end
		t.Cleanup(func() { _ = client.Close() })
		_, err := io.WriteString(client, "GET /events HTTP/1.1\r\nHost: durable\r\nAuthorization: Bearer "+viewerToken+"\r\n\r\n")
		require.NoError(t, err)
		_, err = io.ReadFull(client, make([]byte, len("HTTP/1.1 200 OK")))
		require.NoError(t, err)
	}
	reader, err := b.op.Stream()
	require.NoError(t, err)
	b.enqueue(`{}`)
	began := time.Now()
	for notified := false; !notified; {
		hint, err := reader.Next(t.Context())
		require.NoError(t, err)
		notified = slices.Contains(hint.Changed, "runs")
	}
	status := worker.Status()
	t.Logf("%d clients do not read: another had the hint after %v; lag of the heartbeat %v, margin %.2f", n, time.Since(began), status.BeatLag, status.LeaseMargin)
	require.Less(t, time.Since(began), 20*time.Second, "hints come about every two seconds")
	require.Greater(t, status.LeaseMargin, 0.2, "the worker's beats are in time")

	require.Eventually(t, func() bool {
		var all []*operate.Stream
		for range mostStreams - 1 {
			s, err := b.op.Stream()
			if err == nil {
				all = append(all, s)
			}
		}
		for _, s := range all {
			s.Close()
		}
		return len(all) == mostStreams-1
	}, time.Minute, 500*time.Millisecond, "the places of those who do not read are free again")
	reader.Close()
	close(listener)
	require.NoError(t, server.Close())
	require.Error(t, <-served)
	release()
}

func closed(s *operate.Stream) bool {
	s.Close()
	return true
}
