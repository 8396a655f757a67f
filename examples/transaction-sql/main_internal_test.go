package main

import (
	"bytes"
	"net/url"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/internal/pgtest"
	"github.com/durable-worker/durable-worker/store/postgres"
)

// Also when the example is run again.
func TestNoOneIsGreetedWithoutAnAccount(t *testing.T) {
	database := pgtest.Database(t)
	for range 2 {
		var out bytes.Buffer
		require.NoError(t, accounts(t.Context(), database, &out))
		require.Equal(t, `ada@example.com signed up: true
bob@example.com signed up: true
bob@example.com signed up: false
2 greeted, 0 waiting
`, out.String())
	}
}

// With no more rights than `migrate grants --for worker` prints, and those to tables of
// its own.
func TestUnderTheRoleOfAWorker(t *testing.T) {
	owner := pgtest.StartPrivate(t, pgtest.Options{}).URL()
	store, err := postgres.Open(t.Context(), owner, postgres.Config{})
	require.NoError(t, err)
	t.Cleanup(store.Close)
	_, err = store.Migrate(t.Context())
	require.NoError(t, err)
	grants, err := postgres.Grants("durable", postgres.RoleWorker, "shop")
	require.NoError(t, err)
	pgtest.Execute(t, owner, "create role shop login; grant create on schema public to shop;"+grants)
	address, err := url.Parse(owner)
	require.NoError(t, err)
	address.User = url.User("shop")

	var out bytes.Buffer
	require.NoError(t, accounts(t.Context(), address.String(), &out))
	require.Equal(t, `ada@example.com signed up: true
bob@example.com signed up: true
bob@example.com signed up: false
2 greeted, 0 waiting
`, out.String())
}
