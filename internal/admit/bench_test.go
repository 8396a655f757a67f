package admit_test

import (
	"fmt"
	"testing"

	"github.com/durable-worker/durable-worker/internal/admit"
	"github.com/durable-worker/durable-worker/store"
)

func BenchmarkDecide(b *testing.B) {
	for _, size := range []struct{ room, gates, most int }{{100, 1, 100}, {100, 100, 10}, {500, 100, 10}} {
		b.Run(fmt.Sprintf("%d runs of %d gates", size.room, size.gates), func(b *testing.B) {
			in := admit.Input{Now: start, Room: size.room, Lanes: []admit.Lane{ours}}
			limit := semaphore(7, size.most)
			depth := admit.Depth(size.room, size.gates, store.FullWait)
			for i := range size.gates {
				gate := admit.GateFor(7, fmt.Sprint(i))
				in.Gates = append(in.Gates, admit.Gate{ID: gate, Limit: limit, Depth: depth})
				in.Waiters = append(in.Waiters, waiters(gate, 1, 200*i, 200*i+depth-1)...)
			}
			b.ReportAllocs()
			for b.Loop() {
				d := admit.Decide(&in)
				if len(d.Admitted) == 0 {
					b.Fatal("none")
				}
			}
		})
	}
}
