// Command schedule-per-customer gives each customer a schedule of invoices, in the
// transaction of database/sql that stores the customer: no customer without the schedule, and
// no schedule without the customer. It changes the schedule with the customer's day, and
// deletes it with the customer.
package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"path/filepath"
	"time"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/sqlite"
)

// InvoiceArgs are stored with the schedule, and with each of its runs.
type InvoiceArgs struct {
	Customer string `json:"customer"`
}

func invoice() durable.Job[InvoiceArgs] {
	return durable.NewJob[InvoiceArgs]("invoice", durable.Timeout(time.Minute))
}

// shop has the customers and the schedules in one file.
type shop struct {
	db    *sql.DB
	store *sqlite.Store
}

// within does work in one transaction.
func (s shop) within(ctx context.Context, work func(tx *sql.Tx) error) error {
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	if err := work(tx); err != nil {
		return errors.Join(err, tx.Rollback())
	}
	return tx.Commit()
}

// subscribe stores a customer, or the customer's new day, together with the schedule.
func (s shop) subscribe(ctx context.Context, customer string, day int, zone string) error {
	return s.within(ctx, func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, "INSERT INTO customers VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET day = excluded.day", customer, day)
		if err != nil {
			return err
		}
		monthly := durable.Cron(fmt.Sprintf("0 6 %d * *", day), zone)
		return invoice().Schedule(ctx, s.store.WithTx(tx), "invoice/"+customer, InvoiceArgs{Customer: customer}, monthly,
			durable.CatchUp(durable.CatchUpAll, 0, 12)) // of a year at most
	})
}

// leave deletes a customer together with the schedule.
func (s shop) leave(ctx context.Context, customer string) error {
	return s.within(ctx, func(tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, "DELETE FROM customers WHERE name = ?", customer); err != nil {
			return err
		}
		return s.store.WithTx(tx).ChangeSchedule(ctx, "invoice/"+customer, store.DeleteSchedule, "shop")
	})
}

// show prints each customer's schedule, and what is left over on either side.
func (s shop) show(ctx context.Context, out io.Writer) error {
	schedules, err := s.store.ListSchedules(ctx)
	if err != nil {
		return err
	}
	for _, one := range schedules {
		fmt.Fprintln(out, one.Name, one.Rule.Cron, one.Rule.Zone)
	}
	var customers int
	if err := s.db.QueryRowContext(ctx, "SELECT count(*) FROM customers").Scan(&customers); err != nil {
		return err
	}
	fmt.Fprintln(out, customers, "customers,", len(schedules), "schedules")
	return nil
}

func main() {
	dir, err := os.MkdirTemp("", "schedule-per-customer")
	if err == nil {
		err = errors.Join(customers(context.Background(), dir, os.Stdout), os.RemoveAll(dir))
	}
	if err != nil {
		log.Fatal(err)
	}
}

func customers(ctx context.Context, dir string, out io.Writer) error {
	db, err := sqlite.Open(ctx, filepath.Join(dir, "shop.db"), sqlite.Config{})
	if err != nil {
		return err
	}
	defer db.Close()
	if _, err := db.Migrate(ctx); err != nil {
		return err
	}
	own, err := sql.Open("sqlite", db.DSN())
	if err != nil {
		return err
	}
	defer func() { _ = own.Close() }()
	if _, err := own.ExecContext(ctx, "CREATE TABLE customers (name TEXT PRIMARY KEY, day INTEGER NOT NULL)"); err != nil {
		return err
	}
	s := shop{db: own, store: db}
	err = errors.Join(s.subscribe(ctx, "ann", 1, "Europe/Berlin"), s.subscribe(ctx, "bob", 15, "America/New_York"), s.subscribe(ctx, "cay", 3, ""))
	if err != nil {
		return err
	}
	if err := s.subscribe(ctx, "dan", 1, "Europe/Berlln"); errors.Is(err, durable.ErrInvalid) {
		fmt.Fprintln(out, "dan is not stored: there is no such zone")
	}
	err = errors.Join(s.subscribe(ctx, "ann", 28, "Europe/Berlin"), s.leave(ctx, "cay"))
	if err != nil {
		return err
	}
	return s.show(ctx, out)
}
