package redislock

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/lock"
)

// mostForced is how many forced releases of a lock are remembered.
const mostForced = 100

// ListLocks lists the slots that are held. It walks all keys with SCAN, and may
// miss slots that are taken or freed during the walk.
func (l *Locks) ListLocks(ctx context.Context, prefix string, limit int) ([]lock.Record, error) {
	if err := lock.CheckPrefix(prefix); err != nil {
		return nil, fmt.Errorf("list locks: %w", err)
	}
	keys, err := l.scan(ctx, l.prefix+"{"+braces.Replace(prefix), "*}:[0-9]*")
	if err != nil {
		return nil, fmt.Errorf("list locks: %w", err)
	}
	var records []lock.Record
	for _, key := range keys {
		name, rest, ok := l.parse(key)
		slot, err := strconv.Atoi(rest)
		if !ok || err != nil {
			continue
		}
		record, held, err := l.record(ctx, name, slot)
		if err != nil {
			return nil, fmt.Errorf("list locks: %w", err)
		}
		if held {
			records = append(records, record)
		}
	}
	slices.SortFunc(records, func(a, b lock.Record) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Slot, b.Slot))
	})
	return records[:min(len(records), max(limit, 0))], nil
}

func (l *Locks) record(ctx context.Context, name string, slot int) (lock.Record, bool, error) {
	n := strconv.Itoa(slot)
	pipe := l.client.Pipeline()
	holder := pipe.Get(ctx, l.slot(name, slot))
	left := pipe.PTTL(ctx, l.slot(name, slot))
	fields := pipe.HMGet(ctx, l.book(name), "owner:"+n, "at:"+n, "fence:"+n)
	if _, err := pipe.Exec(ctx); err != nil {
		if errors.Is(err, redis.Nil) {
			return lock.Record{}, false, nil
		}
		return lock.Record{}, false, err
	}
	now, err := l.client.Time(ctx).Result()
	if err != nil {
		return lock.Record{}, false, err
	}
	record := lock.Record{Name: name, Slot: slot, Claim: holder.Val()[:min(8, len(holder.Val()))], ExpiresAt: now.Add(left.Val()).UTC()}
	if values := fields.Val(); len(values) == 3 {
		record.Owner, _ = values[0].(string)
		record.AcquiredAt = instant(values[1])
		record.Fence = lease.Fence(number(values[2]))
	}
	return record, true, nil
}

// ForceRelease frees a slot, whatever holds it.
func (l *Locks) ForceRelease(ctx context.Context, force lock.Force) (bool, error) {
	if err := force.Validate(); err != nil {
		return false, fmt.Errorf("force release of lock: %w", err)
	}
	keys := []string{l.slot(force.Name, force.Slot), l.book(force.Name), l.forced(force.Name), l.waits(force.Name)}
	freed, err := l.run(ctx, tellText+forceText, keys, force.Slot, force.By, force.Reason, mostForced, l.channel(), force.Name).Int64()
	if err != nil {
		return false, fmt.Errorf("force release of lock: %w", err)
	}
	return freed == 1, nil
}

// ListForced lists the forced releases, newest first.
func (l *Locks) ListForced(ctx context.Context, limit int) ([]lock.ForceRecord, error) {
	keys, err := l.scan(ctx, l.prefix+"{", "*}:forced")
	if err != nil {
		return nil, fmt.Errorf("list forced releases: %w", err)
	}
	var records []lock.ForceRecord
	for _, key := range keys {
		name, _, ok := l.parse(key)
		if !ok {
			continue
		}
		texts, err := l.client.LRange(ctx, key, 0, -1).Result()
		if err != nil {
			return nil, fmt.Errorf("list forced releases: %w", err)
		}
		for _, text := range texts {
			var stored struct{ At, By, Reason, Owner, Fence, Slot string }
			if err := json.Unmarshal([]byte(text), &stored); err != nil {
				return nil, fmt.Errorf("list forced releases: %w", err)
			}
			records = append(records, lock.ForceRecord{
				At: instant(stored.At), Name: name, Slot: int(number(stored.Slot)), Owner: stored.Owner,
				Fence: lease.Fence(number(stored.Fence)), By: stored.By, Reason: stored.Reason,
			})
		}
	}
	slices.SortFunc(records, func(a, b lock.ForceRecord) int { return b.At.Compare(a.At) })
	return records[:min(len(records), max(limit, 0))], nil
}

// scan lists the keys that begin with a text and continue as a pattern says.
func (l *Locks) scan(ctx context.Context, begin, pattern string) ([]string, error) {
	literal := strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`, "]", `\]`).Replace(begin)
	var mu sync.Mutex // nodes of a cluster are read concurrently
	found := map[string]bool{}
	err := eachMaster(ctx, l.client, func(ctx context.Context, node redis.Cmdable) error {
		each := node.Scan(ctx, 0, literal+pattern, 1000).Iterator()
		for each.Next(ctx) {
			mu.Lock()
			found[each.Val()] = true
			mu.Unlock()
		}
		return each.Err()
	})
	keys := make([]string, 0, len(found))
	for key := range found {
		keys = append(keys, key)
	}
	return keys, err
}

// parse takes a key of a lock apart.
func (l *Locks) parse(key string) (name, rest string, ok bool) {
	inner, ok := strings.CutPrefix(key, l.prefix+"{")
	if !ok {
		return "", "", false
	}
	name, rest, ok = strings.Cut(inner, "}:")
	return strings.NewReplacer("%7B", "{", "%7D", "}", "%25", "%").Replace(name), rest, ok
}

func number(value any) int64 {
	text, _ := value.(string)
	n, _ := strconv.ParseInt(text, 10, 64)
	return n
}

func instant(value any) time.Time { return time.UnixMicro(number(value)).UTC() }
