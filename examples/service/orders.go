package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/store/sqlite"
)

// shipArgs are stored with the run as JSON.
type shipArgs struct {
	Order int64 `json:"order"`
}

func ship() durable.Job[shipArgs] {
	return durable.NewJob[shipArgs]("ship", durable.Timeout(time.Minute))
}

// orders is the service: its own tables, next to those of the store.
type orders struct {
	db    *sql.DB
	store *sqlite.Store
}

const table = `CREATE TABLE IF NOT EXISTS shop_orders (id integer PRIMARY KEY, item text NOT NULL, shipped_at text)`

// take stores an order and the run that ships it, both or neither.
func (o *orders) take(ctx context.Context, item string) (int64, error) {
	tx, err := o.db.BeginTx(ctx, nil)
	if err != nil {
		return 0, err
	}
	defer func() { _ = tx.Rollback() }() // a no-op after the commit
	var id int64
	if err := tx.QueryRowContext(ctx, "INSERT INTO shop_orders (item) VALUES ($1) RETURNING id", item).Scan(&id); err != nil {
		return 0, err
	}
	if _, err := ship().Enqueue(ctx, o.store.WithTx(tx), shipArgs{Order: id}); err != nil {
		return 0, err
	}
	return id, tx.Commit()
}

// perform ships an order once, however often it is called: the order and the end
// of the run are changed in one transaction.
func (o *orders) perform(ctx context.Context, run *durable.Run[shipArgs]) error {
	return sqlite.Completing(o.store, o.db)(ctx, run, func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, "UPDATE shop_orders SET shipped_at = datetime() WHERE id = $1", run.Args.Order)
		return err
	})
}

// ServeHTTP takes orders by POST and reports how many have been shipped by GET.
func (o *orders) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var answer any
	var err error
	switch r.Method {
	case http.MethodPost:
		answer, err = o.take(r.Context(), r.FormValue("item"))
	case http.MethodGet:
		var shipped int
		err = o.db.QueryRowContext(r.Context(), "SELECT count(shipped_at) FROM shop_orders").Scan(&shipped)
		answer = shipped
	default:
		err = errors.New("POST or GET")
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	text, _ := json.Marshal(answer)
	fmt.Fprintf(w, "%s\n", text)
}
