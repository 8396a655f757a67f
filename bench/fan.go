package main

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/durable-worker/durable-worker/durable"
)

// fan is followers that depend on all of some sources, again and again.
type fan struct {
	sources, followers int
	rounds             int
	lead               time.Duration // after which the sources are due
	apart              time.Duration // between rounds
}

// fanLease is short, so that a beat that is late is seen.
const fanLease = 3 * time.Second

func (f fan) flow() flow {
	if f.sources > 1 {
		return fanningIn
	}
	return following
}

func (f fan) measure(ctx context.Context, b *bench) (sample, error) {
	s := tuned(ours)
	s.Flow = f.flow()
	at, err := b.flowed(ctx, s)
	if err != nil {
		return nil, err
	}
	defer at.close()
	var begun, all, released []float64
	for round := range f.rounds {
		took, err := f.round(ctx, at, round)
		if err != nil {
			return nil, fmt.Errorf("round %d: %w", round, err)
		}
		released = append(released, took)
		if err := pause(ctx, f.apart); err != nil {
			return nil, err
		}
	}
	list, err := at.samples(ctx, f.rounds*f.each())
	if err != nil {
		return nil, err
	}
	for round := range slices.Chunk(list, f.each()) {
		if f.flow() == fanningIn {
			begun, all = append(begun, round[0]), append(all, round[1])
			continue
		}
		begun = append(begun, slices.Max(round))
	}
	found := waits(begun)
	found["released"] = waits(released)["p50"]
	if len(all) > 0 {
		found["all"] = waits(all)["p50"]
	}
	return found, nil
}

// each is how many samples a round has.
func (f fan) each() int {
	if f.flow() == fanningIn {
		return 2 * f.followers
	}
	return f.followers
}

// round returns how long after the last end of a source the last follower was released, by the
// store's clock, in milliseconds.
func (f fan) round(ctx context.Context, at *flowed, round int) (released float64, err error) {
	runs, sources, followers := f.runs(round)
	if err := at.enqueue(ctx, runs); err != nil {
		return 0, err
	}
	if err := at.reach(ctx, (round+1)*f.each()); err != nil {
		return 0, err
	}
	err = at.conn.QueryRow(ctx, `SELECT (extract(epoch FROM
			(SELECT max(due_at) FROM durable.runs WHERE id = ANY ($1::text[]::uuid[])) -
			(SELECT max(finished_at) FROM durable.runs WHERE id = ANY ($2::text[]::uuid[]))) * 1000)::float8`,
		followers, sources).Scan(&released)
	return released, err
}

// runs are those of a round, and the ids of its sources and followers.
func (f fan) runs(round int) (runs []durable.NewRun, sources, followers []string) {
	source, follower := durable.NewJob[args](jobName), durable.NewJob[args](followerJob)
	number := args{N: int64(firstNumber + round)}
	ids := make([]durable.RunID, f.sources)
	for i := range ids {
		run := source.New(number)
		run.After, ids[i] = f.lead, run.ID
		runs, sources = append(runs, run), append(sources, run.ID.String())
	}
	for range f.followers {
		run := follower.New(number, durable.DependsOn(durable.OnSuccess(ids...)))
		runs, followers = append(runs, run), append(followers, run.ID.String())
	}
	return runs, sources, followers
}

// seen is the worst of what was looked at.
type seen struct {
	transaction float64 // milliseconds
	lease       float64 // the least that was left, in seconds
	err         error
}

const lookAt = `SELECT coalesce((SELECT max(extract(epoch FROM clock_timestamp() - xact_start) * 1000)
		FROM pg_stat_activity WHERE usename = '` + loadName + `' AND datname = current_database()), 0)::float8,
	coalesce((SELECT min(extract(epoch FROM coalesce(beats.expires_at, leases.expires_at) - clock_timestamp()))
		FROM durable.leases LEFT JOIN durable.beats ON beats.id = leases.beat), 1e9)::float8`

// look looks each few milliseconds, until it is told to stop.
func (w *watch) look(ctx context.Context) (stop func() seen, err error) {
	conn, err := pgx.ConnectConfig(ctx, w.conn.Config())
	if err != nil {
		return nil, err
	}
	worst := seen{lease: 1e9}
	ctx, cancel := context.WithCancel(ctx)
	var looking sync.WaitGroup
	looking.Go(func() {
		defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
		for pause(ctx, 4*time.Millisecond) == nil && worst.err == nil {
			var transaction, left float64
			if err := conn.QueryRow(ctx, lookAt).Scan(&transaction, &left); err != nil {
				if ctx.Err() == nil {
					worst.err = err
				}
				return
			}
			worst.transaction, worst.lease = max(worst.transaction, transaction), min(worst.lease, left)
		}
	})
	return func() seen { cancel(); looking.Wait(); return worst }, nil
}

// many measures one source of very many followers: how long their release takes, its longest
// transaction, and whether a lease beside it is renewed in time.
func (f fan) many(ctx context.Context, b *bench) (sample, error) {
	s := tuned(ours)
	s.Flow, s.Lease = f.flow(), fanLease
	at, err := b.flowed(ctx, s)
	if err != nil {
		return nil, err
	}
	defer at.close()
	began := time.Now()
	runs, sources, followers := f.runs(0)
	if err := at.enqueue(ctx, runs); err != nil {
		return nil, err
	}
	stored := time.Since(began)
	if _, err := durable.NewJob[args](holdJob).Enqueue(ctx, at.client, args{N: int64(2 * f.lead)}); err != nil {
		return nil, err
	}
	if err := at.counted(ctx, "SELECT count(*) FROM durable.notices", 0, f.lead-time.Since(began)-time.Second); err != nil {
		return nil, fmt.Errorf("the source is due too early: %w", err)
	}
	if err := pause(ctx, f.lead-time.Since(began)-time.Second); err != nil {
		return nil, err
	}
	stop, err := at.look(ctx)
	if err != nil {
		return nil, err
	}
	err = at.reach(ctx, f.followers)
	worst := stop()
	if err == nil {
		err = worst.err
	}
	if err != nil {
		return nil, err
	}
	found := sample{"stored": stored.Seconds(), "longest": worst.transaction, "left": worst.lease}
	list, err := at.samples(ctx, f.followers)
	if err != nil {
		return nil, err
	}
	found["begun"] = slices.Max(list) / 1000
	var released float64
	err = at.conn.QueryRow(ctx, `SELECT extract(epoch FROM max(due_at) - (SELECT finished_at FROM durable.runs WHERE id = $2::uuid))::float8
		FROM durable.runs WHERE id = ANY ($1::text[]::uuid[])`, followers, sources[0]).Scan(&released)
	found["released"] = released
	return found, err
}
