package durablecmd

import (
	"fmt"
	"time"

	"github.com/alecthomas/kong"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/internal/wire"
	"github.com/durable-worker/durable-worker/store"
)

// filterFlags narrow what a verb is about to the runs that match all of them.
type filterFlags struct {
	State      words    `placeholder:"STATE,…" help:"Only runs in these states: pending, running, succeeded, dead or cancelled. Repeatable."`
	Job        words    `placeholder:"JOB,…" help:"Only runs of these jobs. Repeatable."`
	Queue      words    `placeholder:"QUEUE,…" help:"Only runs of these queues. Repeatable."`
	Tag        word     `placeholder:"TAG" help:"Only runs with this tag."`
	Key        word     `placeholder:"KEY" help:"Only runs enqueued with this unique key."`
	Schedule   word     `placeholder:"NAME" help:"Only runs of this schedule."`
	Worker     word     `placeholder:"NAME" help:"Only runs that this worker has, or had last."`
	Error      word     `placeholder:"TEXT" help:"Only runs whose error contains this text."`
	Meta       metaFlag `sep:"none" placeholder:"NAME=VALUE" help:"Only runs with this metadata. Repeatable."`
	Since      *instant `placeholder:"TIME" help:"Only runs created at or after this time: 2030-01-31T08:00:00Z, or 1h for an hour ago."`
	Until      *instant `placeholder:"TIME" help:"Only runs created before this time."`
	EndedSince *instant `placeholder:"TIME" help:"Only runs that ended at or after this time."`
}

// given reports whether any of the flags is.
func (f *filterFlags) given() bool {
	return len(f.State)+len(f.Job)+len(f.Queue) > 0 || f.Tag+f.Key+f.Schedule+f.Worker+f.Error != "" || f.Meta != nil ||
		f.Since != nil || f.Until != nil || f.EndedSince != nil
}

// filter is what the flags ask for. Durations count back from now.
func (f *filterFlags) filter(now time.Time) (durable.Filter, error) {
	filter := durable.Filter{Jobs: f.Job, Queues: f.Queue, Tag: string(f.Tag), Since: f.Since.on(now), Until: f.Until.on(now),
		Key: string(f.Key), Schedule: string(f.Schedule), Worker: string(f.Worker), Error: string(f.Error), Metadata: store.Metadata(f.Meta),
		EndedSince: f.EndedSince.on(now)}
	for _, word := range f.State {
		state, err := store.ParseState(word)
		if err != nil {
			return filter, usage("--state: %w", err)
		}
		filter.States = append(filter.States, state)
	}
	return filter, nil
}

// cursor reads the cursor of an earlier page.
func cursor(text word) (durable.RunID, error) {
	if text == "" {
		return durable.RunID{}, nil
	}
	before, err := durable.ParseRunID(string(text))
	if err != nil {
		return before, usage("--cursor: %w", err)
	}
	return before, nil
}

// instant is the value of a flag that takes a time, or how long ago it was.
type instant struct {
	at  time.Time
	ago time.Duration // when at is the zero time
}

// Decode reads the value.
func (i *instant) Decode(ctx *kong.DecodeContext) error {
	var text word
	if err := text.Decode(ctx); err != nil {
		return err
	}
	at, err := time.Parse(time.RFC3339, string(text))
	if err == nil {
		i.at = at
		return nil
	}
	if i.ago, err = wire.Ago(string(text)); err != nil || i.ago < 0 {
		return fmt.Errorf("%q: want a time such as 2030-01-31T08:00:00Z, or how long ago it was, such as 90s, 1h or 7d", text)
	}
	return nil
}

// on is the time that is meant; the zero time where the flag was not given.
func (i *instant) on(now time.Time) time.Time {
	switch {
	case i == nil:
		return time.Time{}
	case i.at.IsZero():
		return now.Add(-i.ago)
	default:
		return i.at
	}
}
