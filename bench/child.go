package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime/pprof"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// A child process is one worker or one enqueuer of a contender, so that its CPU
// and memory can be distinguished from the others'. The parent writes a line, the child
// answers with a line of JSON:
//
//	(start)   → {}        connected, waiting
//	go        →           begin
//	report    → usage     since go
//	(end)                 drain and exit

// usage is what a child answers to report.
type usage struct {
	Error   string    `json:"error,omitempty"`
	CPU     int64     `json:"cpu"`    // nanoseconds since go
	Memory  int64     `json:"memory"` // bytes resident
	Peak    int64     `json:"peak"`   // the most so far
	Samples []float64 `json:"samples,omitempty"`
	Firsts  []float64 `json:"firsts,omitempty"` // of each worker that has executed something: its first sample
}

// runChild is the main function of a child.
func runChild(text string) error {
	var s spec
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		return err
	}
	answers := json.NewEncoder(os.Stdout)
	activity, err := connect(context.Background(), s)
	if err != nil {
		return answers.Encode(usage{Error: err.Error()})
	}
	defer activity.stop()
	if err := answers.Encode(usage{}); err != nil {
		return err
	}
	var before time.Duration
	commands := bufio.NewScanner(os.Stdin)
	for commands.Scan() {
		switch commands.Text() {
		case "go":
			if err := startProfile(s.Profile); err != nil {
				return err
			}
			before = ownCPU()
			err = activity.start()
		case "report":
			u := usage{CPU: int64(ownCPU() - before), Memory: ownMemory(), Peak: ownPeak(), Samples: activity.samples(), Firsts: activity.firsts()}
			if err != nil {
				u.Error = err.Error()
			}
			pprof.StopCPUProfile()
			if err := answers.Encode(u); err != nil {
				return err
			}
		}
	}
	return commands.Err()
}

func startProfile(path string) error {
	if path == "" {
		return nil
	}
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	return pprof.StartCPUProfile(file)
}

// activity is what a child does.
type activity struct {
	start   func() error
	stop    func()
	samples func() []float64
	firsts  func() []float64
}

func connect(ctx context.Context, s spec) (*activity, error) {
	c, err := contenderOf(s.Contender)
	if err != nil {
		return nil, err
	}
	shared, err := openCounters(s.Counters)
	if err != nil {
		return nil, err
	}
	if s.Role == enqueuing {
		return connectEnqueuer(ctx, c, s, shared)
	}
	return connectWorker(ctx, c, s, shared)
}

func connectWorker(ctx context.Context, c contender, s spec, shared *counters) (*activity, error) {
	all := &crew{count: shared.at(s.Slot)}
	for i := range max(s.Workers, 1) {
		handled := func(int64) { all.count.Add(1) }
		if s.Latency {
			handled = func(sent int64) { all.handled(i, sent) }
		}
		one := s
		one.Watched = i == 0 && s.Slot == 0
		w, err := c.worker(ctx, one, handled)
		if err != nil {
			all.stop()
			return nil, err
		}
		all.workers = append(all.workers, w)
	}
	all.first = make([]float64, len(all.workers))
	return &activity{start: all.start, stop: all.stop, samples: all.samples, firsts: all.firsts}, nil
}

// crew is the workers of one child.
type crew struct {
	workers []*worker
	count   *atomic.Int64

	mu    sync.Mutex
	waits []float64 // milliseconds from enqueue to start
	first []float64 // likewise, of each worker's first run; zero: none
}

func (c *crew) handled(worker int, sent int64) {
	wait := float64(time.Now().UnixNano()-sent) / 1e6
	c.mu.Lock()
	c.waits = append(c.waits, wait)
	if c.first[worker] == 0 {
		c.first[worker] = wait
	}
	c.mu.Unlock()
	c.count.Add(1)
}

func (c *crew) start() error {
	for _, w := range c.workers {
		if err := w.start(); err != nil {
			return err
		}
	}
	return nil
}

func (c *crew) stop() {
	var all sync.WaitGroup
	for _, w := range c.workers {
		all.Go(w.stop)
	}
	all.Wait()
}

func (c *crew) samples() []float64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.waits)
}

func (c *crew) firsts() []float64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(c.first), func(wait float64) bool { return wait == 0 })
}

func connectEnqueuer(ctx context.Context, c contender, s spec, shared *counters) (*activity, error) {
	e, err := c.enqueuer(ctx, s)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	start := func() error {
		running.Go(func() {
			if err := enqueueAll(ctx, e, s, shared); err != nil && ctx.Err() == nil {
				fmt.Fprintln(os.Stderr, "enqueue:", err)
			}
		})
		return nil
	}
	stop := func() { cancel(); running.Wait(); e.close() }
	return &activity{start: start, stop: stop, samples: func() []float64 { return nil }, firsts: func() []float64 { return nil }}, nil
}

// enqueueAll enqueues Total runs, or goes on until ctx ends; with a backlog it
// waits while so many are not yet executed.
func enqueueAll(ctx context.Context, e *enqueuer, s spec, shared *counters) error {
	count := shared.at(enqueuedSlot)
	ticks := time.NewTicker(time.Millisecond)
	defer ticks.Stop()
	for done := 0; s.Total == 0 || done < s.Total; {
		for s.Backlog > 0 && count.Load()-shared.handled() > int64(s.Backlog) {
			select {
			case <-ctx.Done():
				return nil
			case <-ticks.C:
			}
		}
		n := s.Batch
		if s.Total > 0 {
			n = min(n, s.Total-done)
		}
		if err := e.enqueue(ctx, numbers(done, n)); err != nil {
			return err
		}
		done += n
		count.Store(int64(done))
	}
	return nil
}

// child is a child process seen from the parent.
type child struct {
	process *exec.Cmd
	input   io.WriteCloser
	answers *json.Decoder
}

// spawn starts a child and waits until it is connected.
func spawn(s spec) (*child, error) {
	text, err := json.Marshal(s)
	if err != nil {
		return nil, err
	}
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	c, err := launch(exec.Command(program, childWord, string(text)))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", s.Contender, err)
	}
	return c, nil
}

// launch starts a program that answers as a child does, and waits until it is connected.
func launch(process *exec.Cmd) (c *child, err error) {
	c = &child{process: process}
	c.process.Stderr = os.Stderr
	c.process.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if c.input, err = c.process.StdinPipe(); err != nil {
		return nil, err
	}
	output, err := c.process.StdoutPipe()
	if err != nil {
		return nil, err
	}
	c.answers = json.NewDecoder(output)
	if err := c.process.Start(); err != nil {
		return nil, err
	}
	if _, err := c.answer(); err != nil {
		c.end()
		return nil, err
	}
	return c, nil
}

// childWord is the first argument of a child.
const childWord = "child"

func (c *child) answer() (usage, error) {
	var u usage
	if err := c.answers.Decode(&u); err != nil {
		return u, fmt.Errorf("child process: %w", err)
	}
	if u.Error != "" {
		return u, errors.New(u.Error)
	}
	return u, nil
}

func (c *child) begin() error {
	_, err := io.WriteString(c.input, "go\n")
	return err
}

func (c *child) report() (usage, error) {
	if _, err := io.WriteString(c.input, "report\n"); err != nil {
		return usage{}, err
	}
	return c.answer()
}

// end lets the child drain, for a while.
func (c *child) end() {
	_ = c.input.Close()
	overdue := time.AfterFunc(20*time.Second, func() { _ = c.process.Process.Kill() })
	defer overdue.Stop()
	_ = c.process.Wait()
}
