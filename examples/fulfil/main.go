// Command fulfil carries out orders: charge, ship each item by a run of its own, and send the
// receipt. When an item cannot be shipped, the charge is refunded.
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

// Order is what was bought.
type Order struct {
	Number int      `json:"number"`
	Email  string   `json:"email"`
	Items  []string `json:"items"`
}

// Shipment is one item of an order.
type Shipment struct {
	Order int    `json:"order"`
	Item  string `json:"item"`
}

// Parcel is what became of a Shipment.
type Parcel struct {
	Number string `json:"number"`
}

// Receipt is what is mailed.
type Receipt struct {
	To      string   `json:"to"`
	Parcels []string `json:"parcels"`
}

func fulfil() durable.Job[Order] {
	return durable.NewJob[Order]("fulfil", durable.Timeout(time.Minute))
}

func ship() durable.ReturningJob[Shipment, Parcel] {
	return durable.Returning[Parcel](durable.NewJob[Shipment]("ship", durable.Timeout(time.Minute), durable.MaxAttempts(3), durable.Retry(durable.Fixed(10*time.Millisecond))))
}

func receipt() durable.Job[Receipt] {
	return durable.NewJob[Receipt]("receipt", durable.Timeout(time.Minute))
}

// shop is what the handlers call. It recognises a repeat by its key.
type shop interface {
	Charge(ctx context.Context, key string, order int) (payment string, err error)
	Refund(ctx context.Context, payment string) error
	Ship(ctx context.Context, key, item string) (parcel string, err error)
	Mail(ctx context.Context, to string, parcels []string) error
}

// handlers are the handlers of the three jobs.
type handlers struct{ shop shop }

func (h handlers) register(w *durable.Worker) {
	durable.Register(w, fulfil(), h.fulfil)
	durable.RegisterReturning(w, ship(), h.ship)
	durable.Register(w, receipt(), h.receipt)
}

// fulfil waits for its parcels without a slot or a lease, for as long as the warehouse takes.
func (h handlers) fulfil(ctx context.Context, run *durable.Run[Order]) error {
	payment, err := durable.Step(ctx, run, "charge", func(ctx context.Context) (string, error) {
		return h.shop.Charge(ctx, run.StepKey("charge"), run.Args.Number)
	})
	if err != nil {
		return err
	}
	shipments := make([]Shipment, len(run.Args.Items))
	for i, item := range run.Args.Items {
		shipments[i] = Shipment{Order: run.Args.Number, Item: item}
	}
	parcels, err := ship().CallAll(ctx, run, "ship", shipments)
	if failed, ok := errors.AsType[*durable.CallError](err); ok { // recorded: no later execution sees all of them shipped
		first := failed.Failed[0]
		return h.refund(ctx, run, payment, fmt.Errorf("the %s cannot be shipped: %s", run.Args.Items[first.Index], first.Reason))
	}
	if err != nil {
		return err // a park until the last of them has ended
	}
	mail := Receipt{To: run.Args.Email}
	for _, parcel := range parcels {
		mail.Parcels = append(mail.Parcels, parcel.Number)
	}
	return receipt().Start(ctx, run, "receipt", mail)
}

// refund gives the money back, and then the run is dead with the failure.
func (h handlers) refund(ctx context.Context, run *durable.Run[Order], payment string, failure error) error {
	_, err := durable.Step(ctx, run, "refund", func(ctx context.Context) (bool, error) {
		return true, h.shop.Refund(ctx, payment)
	}, durable.StepAttempts(10_000, durable.Exponential(time.Second, time.Hour)))
	if err != nil {
		return err
	}
	return durable.Permanent(failure)
}

func (h handlers) ship(ctx context.Context, run *durable.Run[Shipment]) (Parcel, error) {
	number, err := h.shop.Ship(ctx, run.ID.String(), run.Args.Item)
	return Parcel{Number: number}, err
}

func (h handlers) receipt(ctx context.Context, run *durable.Run[Receipt]) error {
	return h.shop.Mail(ctx, run.Args.To, run.Args.Parcels)
}

// corner is a shop that has no umbrellas.
type corner struct{ out io.Writer }

// Charge charges a card.
func (c corner) Charge(_ context.Context, _ string, order int) (string, error) {
	fmt.Fprintf(c.out, "order %d: charged\n", order)
	return fmt.Sprintf("payment of order %d", order), nil
}

// Refund gives a payment back.
func (c corner) Refund(_ context.Context, payment string) error {
	_, err := fmt.Fprintln(c.out, payment, "refunded")
	return err
}

// Ship sends an item.
func (c corner) Ship(_ context.Context, _, item string) (string, error) {
	if item == "umbrella" {
		return "", durable.Permanent(errors.New("no umbrellas"))
	}
	return "parcel with a " + item, nil
}

// Mail sends a receipt.
func (c corner) Mail(_ context.Context, to string, parcels []string) error {
	_, err := fmt.Fprintln(c.out, "receipt to", to, "for", parcels)
	return err
}

func main() {
	path := flag.String("db", "fulfil.db", "database file")
	flag.Parse()
	if err := play(context.Background(), *path, os.Stdout); err != nil {
		log.Fatal(err)
	}
}

// play carries out two orders, of which one cannot be shipped.
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
	handlers{corner{out}}.register(w)
	ended := make(chan error, 1)
	go func() { ended <- w.Run(working) }()

	client := durable.NewClient(store)
	for _, order := range []Order{{1, "ann@example.com", []string{"book", "lamp"}}, {2, "bob@example.com", []string{"book", "umbrella"}}} {
		stored, err := fulfil().Enqueue(ctx, client, order)
		if err != nil {
			return err
		}
		records, err := client.Wait(ctx, stored.ID)
		if err != nil {
			return err
		}
		if records[0].State == durable.Succeeded {
			if _, err := client.Wait(ctx, durable.IDFrom(stored.ID, "receipt")); err != nil {
				return err
			}
		}
		fmt.Fprintf(out, "order %d is %s\n", order.Number, records[0].State)
	}
	stop()
	return <-ended
}
