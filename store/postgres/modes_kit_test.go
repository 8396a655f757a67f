package postgres_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/postgres"
)

// newRole makes a role without any privilege on a private server.
func newRole(t *testing.T, server string) string {
	t.Helper()
	name := "role_" + strings.ToLower(rand.Text()[:12])
	_, err := connect(t, server).Exec(t.Context(), "create role "+name+" login")
	require.NoError(t, err)
	return name
}

// openAs opens a store for a role that has been granted what one of our roles
// needs.
func openAs(t *testing.T, migrated opened, role postgres.Role, name string) opened {
	t.Helper()
	statements, err := postgres.Grants(migrated.schema, role, name)
	require.NoError(t, err)
	_, err = connect(t, migrated.url).Exec(t.Context(), statements)
	require.NoError(t, err)
	address, err := url.Parse(migrated.url)
	require.NoError(t, err)
	address.User = url.User(name)
	store, err := postgres.Open(t.Context(), address.String(), postgres.Config{Schema: migrated.schema, MaxConns: 4})
	require.NoError(t, err)
	t.Cleanup(store.Close)
	return opened{store, address.String(), migrated.schema}
}

// again runs the test in a process of its own, with another environment, and
// for a bounded time.
func again(t *testing.T, variables ...string) {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, self, "-test.run=^"+t.Name()+"$", "-test.timeout=3m")
	cmd.Env = append(os.Environ(), variables...)
	output, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", output)
}

// goZones is the zone data that Go brings.
func goZones(t *testing.T) string {
	t.Helper()
	root, err := exec.CommandContext(t.Context(), "go", "env", "GOROOT").Output()
	require.NoError(t, err)
	file := filepath.Join(strings.TrimSpace(string(root)), "lib", "time", "zoneinfo.zip")
	require.FileExists(t, file)
	return file
}

// planEverywhere has a worker plan schedules in zones of all kinds, which takes
// no time where it ends at all.
func planEverywhere(t *testing.T, db opened) {
	t.Helper()
	w := durable.NewWorker(db, durable.WorkerConfig{PollInterval: 50 * time.Millisecond})
	durable.Register(w, job, func(context.Context, *durable.Run[map[string]string]) error { return nil })
	zones := []string{"UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kolkata", "Africa/Casablanca", "America/Sao_Paulo", "Pacific/Apia"}
	rules := []string{"30 3 * * *", "*/15 * * * *", "0 0 1 1 *", "0 12 31 12 *", "59 23 31 * *", "0 2 29 2 *"}
	for i, zone := range zones {
		for j, rule := range rules {
			durable.AddSchedule(w, fmt.Sprintf("zone%d-rule%d", i, j), job, map[string]string{}, store.Cron(rule, zone))
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	require.Eventually(t, func() bool {
		schedules, err := db.ListSchedules(t.Context())
		return err == nil && len(schedules) == len(zones)*len(rules) &&
			!slices.ContainsFunc(schedules, func(one store.ScheduleRecord) bool { return one.NextAt == nil })
	}, 2*time.Minute, 20*time.Millisecond)
	cancel()
	require.NoError(t, <-ended)
}
