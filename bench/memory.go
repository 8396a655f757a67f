package main

import (
	"context"
	"fmt"
)

// insertLarge makes the args of all runs 256 KiB, nearly.
const insertLarge = `UPDATE durable.runs SET args = ('{"n":10000000,"x":"' || repeat('x', 262000) || '"}')::json`

// memoryRow drains runs with large args and tells what the worker needed.
func memoryRow(n int) row {
	large := func(ctx context.Context, w *watch) error {
		_, err := w.conn.Exec(ctx, insertLarge)
		return err
	}
	bounded := func(name string, bytes int) side {
		s := spec{Contender: ours, Concurrency: 1000, ClaimBytes: bytes}
		return side{name: name, measure: func(ctx context.Context, b *bench, label string) (sample, error) {
			return b.drain(ctx, drain{worker: s, n: n, ballast: large, label: label})
		}}
	}
	return row{
		name: "memory", long: true, title: fmt.Sprintf("drain %d runs with 256 KiB of args each, 1000 handlers", n),
		figures: []figure{{key: "peak", title: "most resident memory", unit: "MiB", less: true, plain: true}, {key: "rate", title: "throughput", unit: "/s", plain: true}},
		sides:   []side{bounded("16 MiB a claim, the default", 0), bounded("not bounded", 1<<30)},
	}
}
