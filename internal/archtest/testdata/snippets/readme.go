// Package readme is what README.md leaves out.
package readme

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/durable/durabletest"
	signup "github.com/durable-worker/durable-worker/examples/testing"
	"github.com/durable-worker/durable-worker/store/sqlite"
)

type orders struct {
	db    *sql.DB
	store *sqlite.Store
}

type shipArgs struct{ Order int64 }

type outbox struct {
	signup.Mailer
	sent map[string]int
}

//snippet

//snippet

//snippet
