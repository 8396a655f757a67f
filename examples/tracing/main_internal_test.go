package main

import (
	"bytes"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestOneTraceFromTheRequestToTheLastRun(t *testing.T) {
	var out bytes.Buffer
	require.NoError(t, run(t.Context(), filepath.Join(t.TempDir(), "tracing.db"), &out))
	lines := regexp.MustCompile(`trace=(\w{32}) span=(\w{16}) parent=(\w*) *(.*)\n`).FindAllStringSubmatch(out.String(), -1)
	require.Len(t, lines, 5, out.String())
	parents, names := map[string]string{}, map[string]string{}
	for _, line := range lines {
		require.Equal(t, lines[0][1], line[1], "one trace")
		parents[line[2]], names[line[2]] = line[3], line[4]
	}
	for id, name := range names {
		if name == "execute receipt: success" {
			var path []string
			for ; id != ""; id = parents[id] {
				path = append(path, names[id])
			}
			require.Equal(t, []string{"execute receipt: success", "enqueue 1: <nil>", "execute order: success",
				"enqueue 1: <nil>", "POST /orders: <nil>"}, path)
			return
		}
	}
	t.Fatal(out.String())
}
