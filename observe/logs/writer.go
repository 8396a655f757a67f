package logs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"syscall"
	"time"

	"github.com/durable-worker/durable-worker/lease"
)

const (
	defaultMaxLines = 10_000
	defaultMaxBytes = 4 << 20
	writeWithin     = 10 * time.Millisecond // for which Write waits until its line is written
	retryEvery      = time.Second           // after a write that failed
	againAfter      = 10 * time.Millisecond // where a descriptor that does not block takes nothing
)

// Config bounds what a Writer keeps. The zero value is useful.
type Config struct {
	// MaxLines bounds the lines that wait to be written. Default: 10,000.
	MaxLines int
	// MaxBytes bounds the bytes of these lines. Default: 4 MiB. A single line may be longer.
	MaxBytes int
	// Handler makes a handler of the log's own format, for the line about dropped lines.
	// Default: the text format of package slog.
	Handler func(w io.Writer) slog.Handler
}

// Writer writes lines to another writer, in their order, each in one call of Write. Its
// methods may be called from many goroutines.
//
// While the other writer takes the lines, a line has been written when Write returns, as
// without a Writer, and nothing is lost however the program ends. When a line is not
// written within 10 ms, Write does not wait again until all lines have been written. The
// lines wait in memory, and when there are too many of them the new ones are dropped. When
// the other writer takes lines again, those that waited are written, and then one line that
// says how many were dropped: its level is WARN and its event is log.dropped.
//
// A line of which a write has failed is dropped. The next one is tried after a second.
//
// Not promised: that lines which still wait are written when the program ends. Call Flush.
//
// Invariant: at most one goroutine writes, and it runs while the queue is not empty.
type Writer struct {
	out    io.Writer
	config Config
	hurry  chan struct{} // ends the pause after a write that failed
	torn   bool          // the last line was written in part; only the goroutine that writes has it

	mu       sync.Mutex
	queue    []entry
	bytes    int // of the queue
	running  bool
	behind   bool // Write does not wait
	overflow bool // lines are dropped until half of the queue has been written
	writing  bool
	began    time.Duration // when the present write began
	flushes  int           // entries of the queue that are flushes
	dropped  uint64
	lost     gap
}

// entry is a line, or a flush.
type entry struct {
	text []byte          // nil: a flush
	done chan<- struct{} // closed when the entry has ended; nil: no goroutine waits
	err  *error          // set before, if the entry has failed; nil: no goroutine wants to know
}

// end reports to the goroutine that waits for the entry, if there is one, how it ended.
func (e entry) end(err error) {
	if e.err != nil {
		*e.err = err
	}
	if e.done != nil {
		close(e.done)
	}
}

// gap is what was dropped and has not been reported.
type gap struct {
	lines uint64
	since time.Duration
	err   error // of the last write that failed; nil: the queue was full
}

// New returns a Writer to out, which no one else should write to. Nothing is started until
// something is written.
func New(out io.Writer, config Config) *Writer {
	if config.MaxLines <= 0 {
		config.MaxLines = defaultMaxLines
	}
	if config.MaxBytes <= 0 {
		config.MaxBytes = defaultMaxBytes
	}
	if config.Handler == nil {
		config.Handler = func(w io.Writer) slog.Handler { return slog.NewTextHandler(w, nil) }
	}
	return &Writer{out: out, config: config, hurry: make(chan struct{}, 1)}
}

// Write takes one line, which may have several line ends. It never fails, and waits for
// 10 ms at most.
func (w *Writer) Write(line []byte) (int, error) {
	if len(line) == 0 {
		return 0, nil
	}
	written := w.add(bytes.Clone(line))
	if written == nil {
		return len(line), nil
	}
	late := time.NewTimer(writeWithin)
	defer late.Stop()
	select {
	case <-written:
	case <-late.C:
		w.mu.Lock()
		w.behind = true
		w.mu.Unlock()
	}
	return len(line), nil
}

// add queues a line, or drops it. What it returns is nil if Write is not to wait.
func (w *Writer) add(line []byte) (written <-chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.queue) > 0 && (len(w.queue) >= w.config.MaxLines || w.bytes+len(line) > w.config.MaxBytes) {
		w.overflow = true
	}
	if w.overflow {
		w.drop(nil)
		return nil
	}
	e := entry{text: line}
	if !w.behind {
		done := make(chan struct{})
		e.done, written = done, done
	}
	w.enqueue(e)
	return written
}

// enqueue adds an entry, and starts the goroutine that writes. The caller holds mu.
func (w *Writer) enqueue(e entry) {
	w.queue = append(w.queue, e)
	w.bytes += len(e.text)
	if !w.running {
		w.running = true
		go w.work()
	}
}

// drop counts a line that is dropped. The caller holds mu.
func (w *Writer) drop(err error) {
	if w.lost.lines == 0 {
		w.lost.since = lease.Running()
	}
	w.lost.lines++
	w.dropped++
	if err != nil {
		w.lost.err = err
	}
}

// Flush waits until everything that was given to Write before has been written, at most
// until ctx ends. It returns the error of ctx, or that of a write that failed: then it has
// dropped all that waited, without the second that there is otherwise between two tries.
// Call it before the program ends, with a context that ends after a second or two.
func (w *Writer) Flush(ctx context.Context) error {
	var failed error
	done := make(chan struct{})
	w.mu.Lock()
	w.flushes++
	w.enqueue(entry{done: done, err: &failed})
	w.mu.Unlock()
	select {
	case w.hurry <- struct{}{}:
	default:
	}
	select {
	case <-done:
		return failed
	case <-ctx.Done():
		return fmt.Errorf("flush the log: %w", ctx.Err())
	}
}

// Blocked is for how long the present write has not returned; zero: no write is under way.
// A write that fails does not count, however often it is tried.
func (w *Writer) Blocked() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.writing {
		return 0
	}
	return lease.Running() - w.began
}

// Dropped is how many lines were dropped until now, because too many waited or because a
// write failed.
func (w *Writer) Dropped() uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.dropped
}

// work writes until the queue is empty. Flush waits for it.
func (w *Writer) work() {
	for e, some := w.next(); some; e, some = w.next() {
		if e.text == nil {
			e.end(nil)
			continue
		}
		if w.torn {
			e.text = append([]byte("\n"), e.text...)
		}
		n, err := w.write(e.text)
		if err == nil {
			w.torn = false
			w.wrote()
			e.end(nil)
			continue
		}
		w.torn = w.torn || n > 0
		flushed := w.failed(err)
		e.end(err)
		if !flushed {
			w.rest()
		}
	}
}

// next takes the first entry of the queue.
func (w *Writer) next() (e entry, some bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.queue) == 0 {
		w.queue, w.running, w.behind = nil, false, false
		return entry{}, false
	}
	if e = w.pop(); e.text != nil {
		w.writing, w.began = true, lease.Running()
	}
	return e, true
}

// pop takes the first entry of the queue. The caller holds mu.
func (w *Writer) pop() entry {
	e := w.queue[0]
	w.queue[0] = entry{}
	w.queue = w.queue[1:]
	w.bytes -= len(e.text)
	if e.text == nil {
		w.flushes--
	}
	return e
}

// write writes a line, and waits where the descriptor does not.
func (w *Writer) write(line []byte) (n int, err error) {
	for n < len(line) {
		some, err := w.out.Write(line[n:])
		n += max(some, 0)
		switch {
		case errors.Is(err, syscall.EAGAIN): // another program has made the pipe that they share one that does not block
			<-time.After(againAfter)
		case err != nil:
			return n, err
		case n < len(line):
			return n, io.ErrShortWrite
		}
	}
	return n, nil
}

// wrote notes that a line was written. If lines were dropped, and half of the queue is free
// again, a line that says so takes its turn.
func (w *Writer) wrote() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.writing = false
	if w.overflow && (len(w.queue) > w.config.MaxLines/2 || w.bytes > w.config.MaxBytes/2) {
		return
	}
	w.overflow = false
	if w.lost.lines == 0 {
		return
	}
	notice := w.notice(w.lost)
	w.lost = gap{}
	if len(notice) > 0 {
		w.enqueue(entry{text: notice})
	}
}

// notice is the line about lines that were dropped; it is empty where the handler leaves out
// warnings.
func (w *Writer) notice(lost gap) []byte {
	var line bytes.Buffer
	logger := slog.New(w.config.Handler(&line))
	if lost.err != nil {
		logger = logger.With("error", lost.err)
	}
	logger.Warn("log lines dropped: the log was not read, or could not be written", "event", "log.dropped",
		"dropped", lost.lines, "for", (lease.Running() - lost.since).Round(time.Millisecond))
	return line.Bytes()
}

// failed drops the line of which a write has failed. If a flush waits, it drops what was to be
// written before that, and it reports whether it did.
func (w *Writer) failed(err error) (flushed bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.writing, w.behind = false, true
	w.drop(err)
	flushed = w.flushes > 0
	for w.flushes > 0 {
		e := w.pop()
		if e.text != nil {
			w.drop(err)
		}
		e.end(err)
	}
	return flushed
}

// rest waits before the next try, or until there is a flush.
func (w *Writer) rest() {
	pause := time.NewTimer(retryEvery)
	defer pause.Stop()
	select {
	case <-pause.C:
	case <-w.hurry:
	}
}
