package durable_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"time"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/memory"
)

// execute works until a handler calls stop.
func execute(store durable.Store, config durable.WorkerConfig, register func(w *durable.Worker, stop func())) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	w := durable.NewWorker(store, config)
	register(w, cancel)
	if err := w.Run(ctx); err != nil {
		fmt.Println(err)
	}
}

func ExampleMiddleware() {
	polite := func(ctx context.Context, run durable.RunInfo, next func(context.Context) error) error {
		fmt.Println("before", run.Job, "attempt", run.Attempt)
		err := next(ctx)
		fmt.Println("after:", err)
		return err
	}
	store := memory.New(memory.Config{})
	_, _ = greet.Enqueue(context.Background(), durable.NewClient(store), greeting{Name: "ann"})
	execute(store, durable.WorkerConfig{Middleware: []durable.Middleware{polite}}, func(w *durable.Worker, stop func()) {
		durable.Register(w, greet, func(_ context.Context, run *durable.Run[greeting]) error {
			defer stop()
			fmt.Println("hello,", run.Args.Name)
			return nil
		})
	})
	// Output:
	// before greet attempt 1
	// hello, ann
	// after: <nil>
}

func ExampleAlias() {
	store := memory.New(memory.Config{})
	old := durable.NewJob[greeting]("say-hello") // a program of last week
	_, _ = old.Enqueue(context.Background(), durable.NewClient(store), greeting{Name: "ann"})

	renamed := durable.NewJob[greeting]("greeting", durable.Alias("say-hello"), durable.Timeout(time.Minute))
	execute(store, durable.WorkerConfig{}, func(w *durable.Worker, stop func()) {
		durable.Register(w, renamed, func(_ context.Context, run *durable.Run[greeting]) error {
			defer stop()
			fmt.Println("hello,", run.Args.Name, "stored as", run.Job)
			return nil
		})
	})
	// Output: hello, ann stored as say-hello
}

// base64Codec hides nothing; examples/encryption has one that does.
type base64Codec struct{}

func (base64Codec) Encode(_ durable.CodecInfo, data []byte) ([]byte, error) {
	return json.Marshal(data)
}

func (base64Codec) Decode(_ durable.CodecInfo, data []byte) ([]byte, error) {
	var plain []byte
	err := json.Unmarshal(data, &plain)
	return plain, err
}

func ExampleWithCodec() {
	store := memory.New(memory.Config{})
	job := durable.NewJob[greeting]("greet", durable.WithCodec(base64Codec{}))
	receipt, _ := job.Enqueue(context.Background(), durable.NewClient(store), greeting{Name: "ann"})
	record, _ := store.Run(context.Background(), receipt.ID)
	fmt.Println(string(record.Args) == `"`+base64.StdEncoding.EncodeToString([]byte(`{"name":"ann"}`))+`"`)
	args, err := job.ArgsOf(record)
	fmt.Println(args.Name, err)
	// Output:
	// true
	// ann <nil>
}

// counter is a Tracer that counts attempts by what was decided.
type counter map[store.OutcomeKind]int

func (c counter) Enqueue(ctx context.Context, runs []durable.NewRun) (context.Context, func(error)) {
	for i := range runs {
		runs[i].Trace = "from the caller"
	}
	return ctx, nil
}

func (c counter) Execute(ctx context.Context, run durable.RunInfo) (context.Context, func(store.Outcome)) {
	return ctx, func(o store.Outcome) { c[o.Kind]++; fmt.Println(run.Trace, "→", o.Kind) }
}
func (counter) StoreCalled(durable.StoreCall) {}
func (counter) RunSettled(durable.RunVerdict) {}
func (counter) RunLost(durable.RunLoss)       {}

func ExampleClient_WithTracer() {
	store, tracer := memory.New(memory.Config{}), counter{}
	client := durable.NewClient(store).WithTracer(tracer)
	_, _ = greet.Enqueue(context.Background(), client, greeting{Name: "ann"})
	execute(store, durable.WorkerConfig{Tracer: tracer}, func(w *durable.Worker, stop func()) {
		durable.Register(w, greet, func(context.Context, *durable.Run[greeting]) error { stop(); return nil })
	})
	// Output: from the caller → success
}
