package redislock

import (
	"context"
	_ "embed" // the scripts
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/lock"
)

// bookLife is how long a lock that is not requested is remembered. Its fence is
// safe beyond that too: a new one begins at the server's time.
const bookLife = 7 * 24 * time.Hour

// The texts of the scripts.
var (
	//go:embed acquire.lua
	acquireText string
	//go:embed renew.lua
	renewText string
	//go:embed release.lua
	releaseText string
	//go:embed force.lua
	forceText string
	//go:embed note.lua
	noteText string
	//go:embed tell.lua
	tellText string
)

// run runs a script by its hash, and by its text when the server lacks it.
func (l *Locks) run(ctx context.Context, text string, keys []string, args ...any) *redis.Cmd {
	return redis.NewScript(text).Run(ctx, l.client, keys, args...)
}

var braces = strings.NewReplacer("%", "%25", "{", "%7B", "}", "%7D")

func (l *Locks) book(name string) string { return l.prefix + "{" + braces.Replace(name) + "}" }

func (l *Locks) slot(name string, slot int) string { return l.book(name) + ":" + strconv.Itoa(slot) }

func (l *Locks) forced(name string) string { return l.book(name) + ":forced" }

func (l *Locks) waits(name string) string { return l.book(name) + ":waits" }

// refused is the key that refuses a claim which was given back before it came.
func (l *Locks) refused(name string, claim lease.ClaimID) string {
	return l.book(name) + ":refused:" + text(claim)
}

// channel is what those who wait listen on.
func (l *Locks) channel() string { return l.prefix + "freed" }

func text(claim lease.ClaimID) string { return hex.EncodeToString(claim[:]) }

func millis(d time.Duration) int64 { return max(d.Milliseconds(), 1) }

func life(d time.Duration) int64 { return max(bookLife, 2*d).Milliseconds() }

// Acquire takes a free slot of a name.
func (l *Locks) Acquire(ctx context.Context, request lock.Request) (lock.Answer, error) {
	if err := request.Validate(); err != nil {
		return lock.Answer{}, fmt.Errorf("acquire lock: %w", err)
	}
	slots := request.Slots
	for {
		keys := []string{l.book(request.Name), l.refused(request.Name, request.Claim)}
		for slot := range slots {
			keys = append(keys, l.slot(request.Name, slot))
		}
		answer, err := l.run(ctx, acquireText, keys, text(request.Claim), request.Slots, millis(request.Duration),
			request.Owner, life(request.Duration)).Int64Slice()
		if err != nil {
			return lock.Answer{}, failed("acquire lock", err)
		}
		switch {
		case len(answer) == 1 && answer[0] == 3:
			return lock.Answer{}, fmt.Errorf("acquire lock: %w: the claim was given back", lock.ErrRefused)
		case len(answer) == 4 && answer[0] == 1:
			l.note(request.Claim, spot{request.Name, int(answer[1]), lease.Elapsed() + request.Duration})
			return lock.Answer{Granted: true, Slot: int(answer[1]), Fence: lease.Fence(answer[2]), TookOver: answer[3] == 1}, nil
		case len(answer) == 2 && answer[0] == 0:
			return lock.Answer{FreeIn: time.Duration(max(answer[1], 1)) * time.Millisecond}, nil
		case len(answer) == 2 && answer[0] == 2 && int(answer[1]) > slots: // the cap was lowered
			slots = int(answer[1])
		default:
			return lock.Answer{}, fmt.Errorf("acquire lock: the script answered %v", answer)
		}
	}
}

// Renew extends every named claim that still exists, in one round trip. What
// has expired is gone. Where some servers of a cluster have answered and others
// have not, the error is a lease.UnknownError.
func (l *Locks) Renew(ctx context.Context, claims []lease.ClaimID, d time.Duration) ([]lease.ClaimID, error) {
	pipe := l.client.Pipeline()
	asked := map[lease.ClaimID]*redis.Cmd{}
	for _, claim := range claims {
		if at, known := l.find(claim); known {
			asked[claim] = pipe.Eval(ctx, renewText, []string{l.slot(at.name, at.slot), l.book(at.name)}, text(claim), millis(d), life(d))
		}
	}
	if len(asked) == 0 {
		return nil, nil
	}
	_, err := pipe.Exec(ctx) // the first error of a command, or that of the call
	until := lease.Elapsed() + d
	var renewed, unknown []lease.ClaimID
	for claim, command := range asked {
		extended, fault := command.Int64()
		switch {
		case fault != nil:
			unknown = append(unknown, claim)
			err = fault
		case extended == 1:
			renewed = append(renewed, claim)
			l.extend(claim, until)
		default:
			l.forget(claim)
		}
	}
	switch {
	case len(unknown) == len(asked):
		return nil, failed("renew locks", err)
	case len(unknown) > 0:
		return renewed, fmt.Errorf("renew locks: %w", &lease.UnknownError{Claims: unknown, Err: err})
	default:
		return renewed, nil
	}
}

// refusedFor is how long a claim is refused that was given back before it came.
const refusedFor = time.Hour

// Release frees the slot that the claim holds. When it holds none, an acquisition may still be
// on its way: it is refused when it comes.
func (l *Locks) Release(ctx context.Context, name string, claim lease.ClaimID) (bool, error) {
	if err := lock.CheckName(name); err != nil {
		return false, fmt.Errorf("release lock: %w", err)
	}
	if at, known := l.find(claim); known && at.name == name {
		freed, err := l.free(ctx, name, at.slot, claim)
		if freed || err != nil {
			return freed, err
		}
	}
	if freed, err := l.searchAndFree(ctx, name, claim); freed || err != nil {
		return freed, err
	}
	if err := l.client.Set(ctx, l.refused(name, claim), 1, refusedFor).Err(); err != nil {
		return false, failed("release lock", err)
	}
	return l.searchAndFree(ctx, name, claim) // it may have come in between
}

// searchAndFree frees the slot that a claim holds which another process was granted.
func (l *Locks) searchAndFree(ctx context.Context, name string, claim lease.ClaimID) (bool, error) {
	slot, found, err := l.search(ctx, name, claim)
	if err != nil || !found {
		return false, err
	}
	return l.free(ctx, name, slot, claim)
}

// free frees a slot if the claim holds it.
func (l *Locks) free(ctx context.Context, name string, slot int, claim lease.ClaimID) (bool, error) {
	keys := []string{l.slot(name, slot), l.book(name), l.waits(name), l.refused(name, claim)}
	freed, err := l.run(ctx, tellText+releaseText, keys, text(claim), slot, l.channel(), name).Int64()
	if err != nil {
		return false, failed("release lock", err)
	}
	l.forget(claim)
	return freed == 1, nil
}

// failed gives an error the call it belongs to. One key of the server may be another program's:
// that concerns its lock alone.
func failed(what string, err error) error {
	var reply redis.Error
	if errors.As(err, &reply) && strings.Contains(reply.Error(), "WRONGTYPE") {
		err = fmt.Errorf("%w: %w", lock.ErrRefused, err)
	}
	return fmt.Errorf("%s: %w", what, err)
}

// search finds the slot of a claim that another process was granted.
func (l *Locks) search(ctx context.Context, name string, claim lease.ClaimID) (slot int, found bool, err error) {
	fields, err := l.client.HGetAll(ctx, l.book(name)).Result()
	if err != nil {
		return 0, false, failed("release lock", err)
	}
	for field, value := range fields {
		number, isClaim := strings.CutPrefix(field, "claim:")
		if isClaim && value == text(claim) {
			slot, err = strconv.Atoi(number)
			return slot, err == nil, err
		}
	}
	return 0, false, nil
}

// note remembers the spot of a claim.
func (l *Locks) note(claim lease.ClaimID, at spot) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.granted) >= l.sweepAt {
		now := lease.Elapsed()
		for old, at := range l.granted {
			if at.until < now {
				delete(l.granted, old)
			}
		}
		l.sweepAt = max(64, 2*len(l.granted))
	}
	l.granted[claim] = at
}

func (l *Locks) find(claim lease.ClaimID) (spot, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	at, known := l.granted[claim]
	return at, known
}

func (l *Locks) extend(claim lease.ClaimID, until time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if at, known := l.granted[claim]; known {
		at.until = until
		l.granted[claim] = at
	}
}

func (l *Locks) forget(claim lease.ClaimID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.granted, claim)
}
