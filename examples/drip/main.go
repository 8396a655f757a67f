// Command drip welcomes a user, waits for three days, then waits a week for an approval, and grants
// access or sends a nudge. All of it is one handler, and no worker is occupied meanwhile.
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

// User has signed up.
type User struct {
	Name string `json:"name"`
}

// Approval is what a person decides.
type Approval struct {
	Yes bool   `json:"yes"`
	By  string `json:"by"`
}

func onboard() durable.Job[User] {
	return durable.NewJob[User]("onboard", durable.Timeout(time.Minute), durable.EachStep(durable.StepAttempts(8)))
}

// mailer sends mail. It recognises a repeat by its key.
type mailer interface {
	Send(ctx context.Context, key, to, text string) error
}

// drip is what the handler needs.
type drip struct {
	mail            mailer
	pause, patience time.Duration
}

// handle is executed from its beginning after the pause, and after the wait. What was sent is not
// sent again.
func (d drip) handle(ctx context.Context, run *durable.Run[User]) error {
	if err := d.send(ctx, run, "welcome", "welcome"); err != nil {
		return err
	}
	if err := run.Sleep(ctx, "pause", d.pause); err != nil {
		return err
	}
	approval, err := durable.Receive[Approval](ctx, run, "approved", d.patience)
	if errors.Is(err, durable.ErrNoInput) {
		return d.send(ctx, run, "nudge", "are you still there?")
	}
	if err != nil {
		return err
	}
	if !approval.Yes {
		return d.send(ctx, run, "refusal", "not now, says "+approval.By)
	}
	return d.send(ctx, run, "grant", "come in, says "+approval.By)
}

// send sends a mail in a step.
func (d drip) send(ctx context.Context, run *durable.Run[User], step, text string) error {
	_, err := durable.Step(ctx, run, step, func(ctx context.Context) (bool, error) {
		return true, d.mail.Send(ctx, run.StepKey(step), run.Args.Name, text)
	})
	return err
}

// printer is a mailer for the example.
type printer struct{ out io.Writer }

// Send prints the mail.
func (p printer) Send(_ context.Context, _, to, text string) error {
	_, err := fmt.Fprintf(p.out, "to %s: %s\n", to, text)
	return err
}

func main() {
	path := flag.String("db", "drip.db", "database file")
	pause := flag.Duration("pause", 100*time.Millisecond, "from the welcome to the wait for an approval")
	patience := flag.Duration("patience", 200*time.Millisecond, "for an approval")
	flag.Parse()
	if err := play(context.Background(), *path, drip{printer{os.Stdout}, *pause, *patience}); err != nil {
		log.Fatal(err)
	}
}

// play onboards two users, of whom one is approved.
func play(ctx context.Context, path string, d drip) error {
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
	durable.Register(w, onboard(), d.handle)
	ended := make(chan error, 1)
	go func() { ended <- w.Run(working) }()

	client := durable.NewClient(store)
	ada, err := onboard().Enqueue(ctx, client, User{Name: "ada"}, durable.Unique("ada"))
	if err != nil {
		return err
	}
	// Who approves knows the user, not the run; it may come before the run waits for it.
	if _, err := onboard().SendTo(ctx, client, "ada", "approved", Approval{Yes: true, By: "eva"}); err != nil {
		return err
	}
	if _, err := client.Wait(ctx, ada.ID); err != nil {
		return err
	}
	bob, err := onboard().Enqueue(ctx, client, User{Name: "bob"}, durable.Unique("bob"))
	if err != nil {
		return err
	}
	if _, err := client.Wait(ctx, bob.ID); err != nil {
		return err
	}
	stop()
	return <-ended
}
