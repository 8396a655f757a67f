package wake

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/postgres/internal/queries"
)

const pingEvery = 30 * time.Second // of the listening connection

// Listen calls hear for the signals of this process and for the notifications of others,
// one call at a time. It returns when ctx ends, or with an error when its connection breaks.
func (w *Waker) Listen(ctx context.Context, hear func(store.Signal)) error {
	return w.listen(ctx, nil, hear)
}

// ListenFor is Listen for a worker that serves these jobs on these queues. Workers that serve
// the same share their wake-ups: each wake-up reaches few of them.
func (w *Waker) ListenFor(ctx context.Context, serves store.Serves, hear func(store.Signal)) error {
	return w.listen(ctx, newCrew(w.db.Names, serves), hear)
}

// listen implements Listen, without a crew, and ListenFor.
func (w *Waker) listen(ctx context.Context, crew *crew, hear func(store.Signal)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	here := w.hints.here.Join()
	defer w.hints.here.Part(here)

	var hearing sync.WaitGroup
	defer hearing.Wait()
	defer cancel()
	hearing.Go(func() {
		for {
			select {
			case <-here.Given():
				for _, signal := range crew.fold(here.Take()) {
					hear(signal)
				}
			case <-ctx.Done():
				return
			}
		}
	})
	if crew != nil {
		w.crews.join(crew)
		defer w.crews.part(crew)
	}
	l := &listener{Waker: w, crew: crew, channel: w.db.Names.Channel(),
		begun: func() { // for what was sent before this listener began
			here.Put(store.Signal{Kind: store.RunsDue}, store.Signal{Kind: store.CancelsRequested}, store.Signal{Kind: store.RunEnded})
		},
	}
	l.heard = func(payload string) { here.Put(l.watch(ctx, payload)...) }
	if err := l.run(ctx); err != nil && ctx.Err() == nil {
		return fmt.Errorf("listen: %w", err)
	}
	return nil
}

const (
	// listenSession exempts the listening session from an idle_session_timeout that is set for
	// the role or the database.
	listenSession = "SELECT pg_catalog.set_config('idle_session_timeout', '0', false)"
	// planOnce has a session that watches plan each statement once. A pooler in between would
	// give that setting to the sessions of other programs.
	planOnce = ", pg_catalog.set_config('plan_cache_mode', 'force_generic_plan', false)"
)

// listener is a call of Listen in progress.
type listener struct {
	*Waker
	crew     *crew // nil: of a listener that does not work
	channel  string
	begun    func()
	heard    func(payload string)
	conn     *pgx.Conn
	checkAt  time.Duration // monotonic clock when the crew is examined next, or the connection tried
	tenths   []heldTenth   // in which this worker has announced that it watches
	handover handover      // of that watch to another worker
}

// Receive calls heard for what is sent to a channel, and begun once it listens. It returns when
// ctx ends, or with an error when its connection breaks.
func (w *Waker) Receive(ctx context.Context, channel string, begun func(), heard func(payload string)) error {
	l := &listener{Waker: w, channel: channel, begun: begun, heard: heard}
	return l.run(ctx)
}

// run waits for notifications on its own connection.
func (l *listener) run(ctx context.Context) (err error) {
	if l.conn, err = l.db.DialAlone(ctx); err != nil {
		return err
	}
	defer l.leave(ctx)
	session := listenSession
	if l.crew != nil && !l.db.Unpinned {
		session += planOnce
	}
	if _, err := l.conn.Exec(ctx, session); err != nil {
		return err
	}
	if _, err := l.conn.Exec(ctx, "LISTEN "+pgx.Identifier{l.channel}.Sanitize()); err != nil {
		return err
	}
	l.checkAt = lease.Elapsed() + pingEvery
	if l.crew != nil {
		if err := l.crew.join(ctx, l.db, l.conn); err != nil {
			return err
		}
		if err := l.try(ctx); err != nil {
			return err
		}
		l.joined(ctx)
	}
	l.begun()
	for {
		quiet, cancel := context.WithTimeout(ctx, max(l.pause(), time.Millisecond))
		notification, err := l.conn.WaitForNotification(quiet)
		cancel()
		switch {
		case err == nil:
			if change, ok := readChange(notification.Payload); !ok {
				l.heard(notification.Payload)
			} else if l.crew != nil {
				l.crew.take(change)
				l.checkAt = min(l.checkAt, lease.Elapsed()+l.crew.checkPause()) // the crew may be larger than it was
			}
		case ctx.Err() != nil:
			return nil
		case !errors.Is(err, context.DeadlineExceeded):
			return err
		}
		l.handOver(ctx)
		l.releaseExpired(ctx)
		if lease.Elapsed() >= l.checkAt {
			if err := l.try(ctx); err != nil {
				return err
			}
		}
	}
}

// pause returns how long to wait for a notification at most.
func (l *listener) pause() time.Duration {
	most := l.checkAt - lease.Elapsed()
	if l.handover.at != 0 {
		most = min(most, l.handover.at-lease.Running())
	}
	for i := range l.tenths {
		most = min(most, l.tenths[i].until-lease.Running())
	}
	return most
}

// try checks that the connection works and reads who else listens.
func (l *listener) try(ctx context.Context) error {
	if l.crew != nil {
		gone, err := l.crew.check(ctx, l.db, l.conn)
		if len(gone) > 0 {
			l.notifyCrew(ctx, l.crew.changes(crewLeaves, gone)...)
		}
		l.checkAt = lease.Elapsed() + l.crew.checkPause()
		return err
	}
	l.checkAt = lease.Elapsed() + pingEvery
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	return l.conn.Ping(ctx)
}

// joined notifies the other members that this listener joins, and that members of this
// process whose connections broke have left. Otherwise the others would count those until
// their next check.
func (l *listener) joined(ctx context.Context) {
	lost := l.crews.takeLost(l.crew.key)
	changes := append(l.crew.changes(crewLeaves, lost), l.crew.change(crewJoins, l.crew.own()))
	if !l.notifyCrew(ctx, changes...) {
		l.crews.lose(l.crew.key, lost...)
	}
}

// notifyCrew notifies the other members of changes of the crew. It reports whether they are notified.
func (l *listener) notifyCrew(ctx context.Context, changes ...string) bool {
	if l.noNotify {
		return true
	}
	payloads := make([]string, len(changes))
	for i, change := range changes {
		payloads[i] = l.hints.self + " " + change
	}
	err := l.db.Queries(l.conn).Notify(ctx, queries.NotifyParams{Channel: l.channel, Payloads: payloads})
	if err != nil && ctx.Err() == nil {
		l.db.Log.Debug("notifying others failed, they find out within half a minute", "event", "wakeup.not_relayed", "error", err)
	}
	return err == nil
}

// leave closes the connection.
func (l *listener) leave(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	if l.crew != nil {
		own := l.crew.own()
		if own != 0 && (l.conn.IsClosed() || !l.notifyCrew(ctx, l.crew.change(crewLeaves, own))) {
			l.crews.lose(l.crew.key, own)
		}
	}
	_ = l.conn.Close(ctx)
}
