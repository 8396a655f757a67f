package wake

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/durable-worker/durable-worker/store/postgres/internal/conn"
	"github.com/durable-worker/durable-worker/store/postgres/internal/queries"
)

// crews are the crews of the workers of this process.
type crews struct {
	mu   sync.Mutex
	all  []*crew
	lost map[int32][]uint32 // by the key of the crew, members whose connection broke before they could say that they leave
}

func (c *crews) join(one *crew) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all = append(c.all, one)
}

func (c *crews) part(one *crew) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all = slices.DeleteFunc(c.all, func(other *crew) bool { return other == one })
}

// lose records members of a crew that could not say that they leave. The next member that
// joins from this process says it for them.
func (c *crews) lose(key int32, members ...uint32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.lost == nil {
		c.lost = map[int32][]uint32{}
	}
	c.lost[key] = append(c.lost[key], members...)
}

// takeLost returns the members that lose recorded for a crew, and forgets them.
func (c *crews) takeLost(key int32) []uint32 {
	c.mu.Lock()
	defer c.mu.Unlock()
	members := c.lost[key]
	delete(c.lost, key)
	return members
}

// any reports whether any worker of this process listens.
func (c *crews) any() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.all) > 0
}

// find returns the crew with this key; nil: no worker of this process listens for it.
func (c *crews) find(key int32) *crew {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, one := range c.all {
		if one.key == key {
			return one
		}
	}
	return nil
}

// join makes the session of this connection a member.
func (c *crew) join(ctx context.Context, db *conn.DB, session *pgx.Conn) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	return db.Queries(session).JoinCrew(ctx, queries.JoinCrewParams{Class: c.class, Crew: c.key})
}

// check reads the members from the lock table of the server, and returns those that have
// left without notifying the others.
func (c *crew) check(ctx context.Context, db *conn.DB, session *pgx.Conn) (gone []uint32, err error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	rows, err := db.Queries(session).Crew(ctx, queries.CrewParams{Class: c.class, Crew: c.key})
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	before := c.members
	c.self, c.members = 0, make([]uint32, 0, len(rows))
	for _, row := range rows {
		id := uint32(row.Pid) //nolint:gosec // a process number
		if c.members = append(c.members, id); row.Self {
			c.self = id
		}
	}
	if c.self == 0 {
		c.members = nil
	}
	for _, member := range before {
		if c.self != 0 && !slices.Contains(c.members, member) {
			gone = append(gone, member)
		}
	}
	return gone, nil
}

// checkEach is the time between two checks of a crew in which not every turn has a stand-in,
// by whichever member. The one that misses a member notifies the others.
const checkEach = time.Second

// checkPause returns how long this member waits before it checks the crew again.
func (c *crew) checkPause() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := len(c.members)
	if n <= standIns {
		return pingEvery
	}
	pause := min(time.Duration(n)*checkEach, pingEvery)
	return pause - pause/4 + rand.N(pause/2) // members of a new fleet begin together
}
