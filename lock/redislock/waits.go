package redislock

import (
	"cmp"
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/lock"
)

// NoteWait notes that a process waits for a name.
func (l *Locks) NoteWait(ctx context.Context, wait lock.Wait, d time.Duration) error {
	if err := wait.Validate(); err != nil {
		return fmt.Errorf("note wait: %w", err)
	}
	if err := l.run(ctx, noteText, []string{l.waits(wait.Name)}, text(wait.Waiter), wait.Calls, wait.Owner, millis(d)).Err(); err != nil {
		return fmt.Errorf("note wait: %w", err)
	}
	return nil
}

// ListWaits lists the notes that stand. It walks all keys with SCAN.
func (l *Locks) ListWaits(ctx context.Context, prefix string, limit int) ([]lock.Wait, error) {
	if err := lock.CheckPrefix(prefix); err != nil {
		return nil, fmt.Errorf("list waits: %w", err)
	}
	keys, err := l.scan(ctx, l.prefix+"{"+braces.Replace(prefix), "*}:waits")
	if err != nil {
		return nil, fmt.Errorf("list waits: %w", err)
	}
	now, err := l.client.Time(ctx).Result()
	if err != nil {
		return nil, fmt.Errorf("list waits: %w", err)
	}
	var waits []lock.Wait
	for _, key := range keys {
		name, rest, ok := l.parse(key)
		if !ok || rest != "waits" {
			continue
		}
		notes, err := l.client.HGetAll(ctx, key).Result()
		if err != nil {
			return nil, fmt.Errorf("list waits: %w", err)
		}
		for waiter, note := range notes {
			var stored struct{ Since, Until, Calls, Owner string }
			if err := json.Unmarshal([]byte(note), &stored); err != nil {
				return nil, fmt.Errorf("list waits: %w", err)
			}
			claim, ok := parseClaim(waiter)
			if ok && instant(stored.Until).After(now) {
				waits = append(waits, lock.Wait{
					Name: name, Waiter: claim, Owner: stored.Owner, Calls: int(number(stored.Calls)), Since: instant(stored.Since),
				})
			}
		}
	}
	slices.SortFunc(waits, func(a, b lock.Wait) int { return cmp.Or(cmp.Compare(a.Name, b.Name), a.Since.Compare(b.Since)) })
	return waits[:min(len(waits), max(limit, 0))], nil
}

// HearFreed subscribes to what releases publish.
func (l *Locks) HearFreed(ctx context.Context, waiter lease.ClaimID, hear func(name string)) error {
	subscription := l.client.Subscribe(ctx, l.channel())
	defer subscription.Close() //nolint:errcheck // nothing is lost
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(ctx, func() { _ = subscription.Close() })() // or a receive that waits would not end
	me := text(waiter)
	for {
		received, err := subscription.ReceiveTimeout(ctx, 0)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return fmt.Errorf("subscribe to releases: %w", err)
		}
		switch received := received.(type) {
		case *redis.Subscription:
			hear("")
		case *redis.Message:
			if woken, name, ok := strings.Cut(received.Payload, " "); ok && woken == me {
				hear(name)
			}
		}
	}
}

func parseClaim(written string) (claim lease.ClaimID, ok bool) {
	if len(written) != hex.EncodedLen(len(claim)) {
		return claim, false
	}
	_, err := hex.Decode(claim[:], []byte(written))
	return claim, err == nil
}
