package leases

import (
	"context"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/store/postgres/internal/conn"
	"github.com/durable-worker/durable-worker/store/postgres/internal/queries"
)

// shared is how many leases one call must renew for them to follow a beat: one
// row that reports when they all expire. Fewer are renewed individually.
const shared = 64

// mostBeats bounds the beats that are remembered. One is enough for each
// heartbeat.Keeper that uses the store.
const mostBeats = 16

// renewedEach bounds the leases that one statement renews individually.
const renewedEach = 1000

// beatRounds bounds how often one renewal asks for leases that did not follow
// the beat, though they might still stand.
const beatRounds = 3

// Renew extends leases, on connections that nothing else uses, as long as there is one. Many of them
// expire together, so that one row is written for all. When the database refuses
// that, or a transaction holds that row, each lease is renewed in a row of its own.
func (l *Leases) Renew(ctx context.Context, claims []lease.ClaimID, d time.Duration) ([]lease.ClaimID, error) {
	if len(claims) == 0 {
		return nil, nil
	}
	if len(claims) >= shared {
		renewed, err := l.renewTogether(ctx, claims, d)
		if !conn.RefusesStatement(err) || ctx.Err() != nil {
			if err != nil {
				return nil, l.db.Fail("renew leases", err)
			}
			return renewed, nil
		}
		l.db.Log.Warn("leases cannot be renewed together, renewing each by itself", "event", "lease.renewed_singly", "leases", len(claims), "error", err)
	}
	all := make([]lease.ClaimID, 0, len(claims))
	for some := range slices.Chunk(claims, renewedEach) {
		renewed, err := l.renewEach(ctx, some, d)
		if err != nil {
			return nil, l.db.Fail("renew leases", err)
		}
		all = append(all, renewed...)
	}
	return all, nil
}

// renewEach renews some leases, each in its row.
func (l *Leases) renewEach(ctx context.Context, claims []lease.ClaimID, d time.Duration) (renewed []lease.ClaimID, err error) {
	err = l.db.Repeat(ctx, func() error {
		b := l.db.Guarded(ctx)
		b.Add(queries.RenewLeases, conn.Micro(d), conn.ClaimIDs(claims)).Query(func(rows pgx.Rows) error {
			renewed = make([]lease.ClaimID, 0, len(claims))
			return conn.ScanIDs(rows, func(id uuid.UUID) { renewed = append(renewed, lease.ClaimID(id)) })
		})
		return l.db.Beats.Send(ctx, b)
	})
	return renewed, err
}

// beat is a row of beats with the leases that this process believes to follow it. Each
// renewal learns which leases do follow it; the belief only decides what is sent.
type beat struct {
	id        uuid.UUID
	followers map[lease.ClaimID]struct{}
	idle      time.Duration // from this instant of lease.Elapsed on nothing follows it that has not expired
}

// beatCache keeps the beats of this process; those in use are not in it. The
// longest unused one is first.
type beatCache struct {
	mu   sync.Mutex // guards kept
	kept []*beat
}

// take returns the beat that one of the claims follows. If none does, as with claims that
// end before their second renewal, it reuses a beat that no lease can follow any more, so that
// beats do not accumulate. Otherwise it returns a new one.
func (c *beatCache) take(claims []lease.ClaimID) *beat {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := len(c.kept) - 1; i >= 0; i-- {
		for _, claim := range claims {
			if _, ok := c.kept[i].followers[claim]; ok {
				return c.out(i)
			}
		}
	}
	now := lease.Elapsed()
	for i := range c.kept {
		if now >= c.kept[i].idle {
			return c.out(i)
		}
	}
	return &beat{id: uuid.New(), followers: map[lease.ClaimID]struct{}{}}
}

// out takes a beat out of those kept. c.mu is held.
func (c *beatCache) out(i int) *beat {
	found := c.kept[i]
	c.kept = append(c.kept[:i:i], c.kept[i+1:]...)
	return found
}

// put keeps a beat that is idle from an instant on.
func (c *beatCache) put(b *beat, idle time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	b.idle = idle
	if c.kept = append(c.kept, b); len(c.kept) > mostBeats {
		c.kept = c.kept[1:]
	}
}

// renewTogether renews leases that follow one beat, and makes the others follow it. The
// database reports each time which leases the beat renewed: one that is gone is not among
// them. A lease that was removed from its beat because it had expired, but that no worker has
// taken over, is renewed once more.
func (l *Leases) renewTogether(ctx context.Context, claims []lease.ClaimID, d time.Duration) ([]lease.ClaimID, error) {
	b := l.together.take(claims)
	idle := time.Duration(math.MaxInt64) // after an error any lease may follow it, and is renewed with the next ones
	defer func() { l.together.put(b, idle) }()
	asked := make(map[lease.ClaimID]struct{}, len(claims))
	for _, claim := range claims {
		asked[claim] = struct{}{}
	}
	join, part := b.difference(asked)
	for range beatRounds {
		if err := l.db.Repeat(ctx, func() error { return l.sendBeat(ctx, b, d, join, part) }); err != nil {
			return nil, err
		}
		tried := make(map[uuid.UUID]struct{}, len(join))
		for _, id := range join {
			tried[id] = struct{}{}
		}
		var lost conn.UUIDs
		if lost, part = b.difference(asked); len(part) == 0 && all(lost, tried) {
			break
		}
		join = lost
	}
	idle = lease.Elapsed() + d
	renewed := make([]lease.ClaimID, 0, len(b.followers))
	for claim := range b.followers {
		if _, ok := asked[claim]; ok {
			renewed = append(renewed, claim)
		}
	}
	return renewed, nil
}

// follow notes what follows the beat. Mostly that is what did before.
func (b *beat) follow(ids []uuid.UUID) {
	same := len(ids) == len(b.followers)
	for i := 0; same && i < len(ids); i++ {
		_, same = b.followers[lease.ClaimID(ids[i])]
	}
	if same {
		return
	}
	b.followers = make(map[lease.ClaimID]struct{}, len(ids))
	for _, id := range ids {
		b.followers[lease.ClaimID(id)] = struct{}{}
	}
}

// difference returns which of the leases asked for do not follow the beat, and
// which others do.
func (b *beat) difference(asked map[lease.ClaimID]struct{}) (join, part conn.UUIDs) {
	join, part = conn.UUIDs{}, conn.UUIDs{}
	for claim := range asked {
		if _, ok := b.followers[claim]; !ok {
			join = append(join, uuid.UUID(claim))
		}
	}
	for claim := range b.followers {
		if _, ok := asked[claim]; !ok {
			part = append(part, uuid.UUID(claim))
		}
	}
	return join, part
}

func all(ids conn.UUIDs, of map[uuid.UUID]struct{}) bool {
	for _, id := range ids {
		if _, ok := of[id]; !ok {
			return false
		}
	}
	return true
}

// sendBeat renews the beat, in one transaction with the leases that join and leave it, and
// records what follows it then. After an error the earlier belief still counts.
func (l *Leases) sendBeat(ctx context.Context, b *beat, d time.Duration, join, part conn.UUIDs) error {
	batch := l.db.Guarded(ctx)
	batch.Add(queries.Beat, b.id, conn.Micro(d))
	if len(part) > 0 {
		batch.Add(queries.LeaveBeat, b.id, part)
	}
	if len(join) > 0 {
		batch.Add(queries.FollowBeat, b.id, conn.Micro(d), join)
	}
	ids := make([]uuid.UUID, 0, len(b.followers)+len(join))
	batch.Add(queries.Followers, b.id).Query(func(rows pgx.Rows) error {
		ids = ids[:0]
		return conn.ScanIDs(rows, func(id uuid.UUID) { ids = append(ids, id) })
	})
	if err := l.db.Beats.Send(ctx, batch); err != nil {
		return err
	}
	b.follow(ids)
	return nil
}
