package main

import (
	"bytes"
	"context"
	"encoding/json"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/durable/durabletest"
	"github.com/durable-worker/durable-worker/store"
)

// noting is a reader that notes what it reads.
type noting struct{ kit *durabletest.Kit }

func (n noting) Read(ctx context.Context, file string, page int) (int, error) {
	n.kit.Effect(ctx, file+" "+strconv.Itoa(page))
	return page, nil
}

func TestTheFileIsImported(t *testing.T) {
	var out bytes.Buffer
	require.NoError(t, play(t.Context(), filepath.Join(t.TempDir(), "import.db"), 20, &out))
	require.Equal(t, "1900 rows imported; pages that cannot be read: [13]\n", out.String())
}

func TestAFileOfManyPagesIsReportedOnce(t *testing.T) {
	durabletest.Run(t, func(t *testing.T, kit *durabletest.Kit) {
		kit.Worker(handlers{noting{kit}}.register)
		stored, err := importFile().Enqueue(t.Context(), kit.Client, File{"ledger", 1200})
		require.NoError(t, err)
		kit.RunAll()
		record := durabletest.RequireState(t, kit.Store, stored.ID, durable.Succeeded)
		var report Report
		require.NoError(t, json.Unmarshal(record.Result, &report))
		require.Equal(t, Report{Rows: 1200 * 1201 / 2}, report)
		require.Len(t, kit.Effects(), 1200)
		pages := durable.IDFrom(stored.ID, "pages")
		durabletest.RequireBatch(t, kit.Store, pages, store.BatchSucceeded, store.BatchCounts{Members: 1200, Succeeded: 1200})
	})
}

func TestAnImportSurvivesCrashes(t *testing.T) {
	durabletest.CrashAfterEachStep(t, func(t *testing.T, kit *durabletest.Kit) {
		kit.Worker(handlers{noting{kit}}.register)
		_, err := importFile().Enqueue(t.Context(), kit.Client, File{"ledger", 7})
		require.NoError(t, err)
		kit.RunAll()
	})
}
