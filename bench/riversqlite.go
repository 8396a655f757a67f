package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
)

// riverOnSQLite drains n runs with River's own SQLite driver: a program of its
// own in riversqlite, for the driver is published for an older River only.
func (b *bench) riverOnSQLite(ctx context.Context, n int) (sample, error) {
	program, err := b.build(ctx, "riversqlite")
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp(b.dir, "river-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	drain := exec.CommandContext(ctx, program, "-dir", dir, "-n", strconv.Itoa(n))
	drain.Stderr = os.Stderr
	text, err := drain.Output()
	if err != nil {
		return nil, fmt.Errorf("riversqlite: %w", err)
	}
	var s sample
	return s, json.Unmarshal(text, &s)
}

// build builds a program in a directory of the benchmark that is a module of its own.
func (b *bench) build(ctx context.Context, name string) (program string, err error) {
	program = filepath.Join(b.dir, name)
	build := exec.CommandContext(ctx, "go", "build", "-o", program, ".")
	build.Dir, build.Stderr = name, os.Stderr
	if err := build.Run(); err != nil {
		return "", fmt.Errorf("build %s (run the benchmark in its own directory): %w", name, err)
	}
	return program, nil
}

func sqliteRow(few int) row {
	return row{
		name:    "sqlite",
		title:   fmt.Sprintf("drain %d runs (River 0.31.0, the last with a published SQLite driver: %d) in one SQLite file, fsync at each commit", 5*few, few),
		figures: []figure{{key: "rate", title: "throughput", unit: "/s", ratio: 10}, unbounded(costs()[1:2])[0]},
		sides: []side{
			drainingOn(onSQLite, spec{Contender: ours}, 5*few, 1),
			{name: river, measure: func(ctx context.Context, b *bench, _ string) (sample, error) { return b.riverOnSQLite(ctx, few) }},
		},
	}
}
