// Command agent asks a model in a loop, and calls the tools that the model asks for. Each answer and
// each result of a tool is a step: after a crash the loop continues, and no answer is paid for twice.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"time"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/store/sqlite"
)

// Question is what the agent is to answer.
type Question struct {
	Text string `json:"text"`
}

// Message is a part of the conversation.
type Message struct {
	From  string `json:"from"` // user, model, or a tool
	Text  string `json:"text,omitempty"`
	Calls []Call `json:"calls,omitempty"` // tools that the model asks for
}

// Call asks for a tool.
type Call struct {
	Tool     string `json:"tool"`
	Argument string `json:"argument"`
}

func answer() durable.Job[Question] {
	return durable.NewJob[Question]("answer", durable.Timeout(10*time.Minute),
		durable.EachStep(durable.StepAttempts(4, durable.Exponential(10*time.Millisecond, time.Minute)), durable.StepTimeout(2*time.Minute)))
}

// mostTurns bounds the loop.
const mostTurns = 20

// agent is what the handler needs.
type agent struct {
	ask   func(ctx context.Context, history []Message) (Message, error)
	tools map[string]func(ctx context.Context, argument string) (string, error)
}

// handle asks the model until it has an answer. The history is what the steps return, so each execution
// builds the same.
func (a agent) handle(ctx context.Context, run *durable.Run[Question]) error {
	history := []Message{{From: "user", Text: run.Args.Text}}
	for turn := range mostTurns {
		reply, err := durable.Step(ctx, run, fmt.Sprint("turn ", turn), func(ctx context.Context) (Message, error) { return a.ask(ctx, history) })
		if err != nil {
			return err
		}
		if len(reply.Calls) == 0 {
			return run.SetResult(reply.Text)
		}
		results, err := a.call(ctx, run, turn, reply.Calls)
		if err != nil {
			return err
		}
		history = append(append(history, reply), results...)
	}
	return durable.Permanent(fmt.Errorf("no answer after %d turns", mostTurns))
}

// call calls tools concurrently. One that has failed for good is an answer too.
func (a agent) call(ctx context.Context, run *durable.Run[Question], turn int, calls []Call) ([]Message, error) {
	results := make([]Message, len(calls))
	branches := make([]func(context.Context) error, len(calls))
	for i, call := range calls {
		branches[i] = func(ctx context.Context) error {
			text, err := durable.Step(ctx, run, fmt.Sprintf("turn %d, tool %d: %s", turn, i, call.Tool), func(ctx context.Context) (string, error) {
				tool, known := a.tools[call.Tool]
				if !known {
					return "", durable.Permanent(fmt.Errorf("there is no tool %q", call.Tool))
				}
				return tool(ctx, call.Argument)
			})
			if failed := new(durable.StepError); errors.As(err, &failed) {
				text, err = "failed: "+failed.Text, nil
			}
			results[i] = Message{From: call.Tool, Text: text}
			return err
		}
	}
	return results, durable.Parallel(ctx, run, branches...)
}

func main() {
	path := flag.String("db", "agent.db", "database file")
	flag.Parse()
	if err := play(context.Background(), *path, os.Stdout); err != nil {
		log.Fatal(err)
	}
}

// scripted takes the place of a model: it asks for the weather, and answers with what it was.
func scripted(out io.Writer) agent {
	return agent{
		ask: func(_ context.Context, history []Message) (Message, error) {
			fmt.Fprintf(out, "the model is asked, with %d messages\n", len(history))
			if len(history) == 1 {
				return Message{From: "model", Calls: []Call{{"weather", "Oslo"}, {"horoscope", "Oslo"}}}, nil
			}
			return Message{From: "model", Text: fmt.Sprintf("It is %s; the horoscope %s.", history[2].Text, history[3].Text)}, nil
		},
		tools: map[string]func(context.Context, string) (string, error){
			"weather": func(_ context.Context, city string) (string, error) { return "raining in " + city, nil },
		},
	}
}

func play(ctx context.Context, path string, out io.Writer) error {
	store, err := sqlite.Open(ctx, path, sqlite.Config{})
	if err != nil {
		return err
	}
	defer store.Close()
	if _, err := store.Migrate(ctx); err != nil {
		return err
	}
	working, stop := context.WithCancel(ctx)
	defer stop()
	w := durable.NewWorker(store, durable.WorkerConfig{})
	durable.Register(w, answer(), scripted(out).handle)
	ended := make(chan error, 1)
	go func() { ended <- w.Run(working) }()

	client := durable.NewClient(store)
	receipt, err := answer().Enqueue(ctx, client, Question{Text: "How is Oslo?"})
	if err != nil {
		return err
	}
	result, err := durable.Result[string](ctx, client, receipt.ID)
	if err != nil {
		return err
	}
	fmt.Fprintln(out, result)
	stop()
	return <-ended
}
