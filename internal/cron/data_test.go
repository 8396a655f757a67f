package cron_test

import (
	"archive/zip"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/internal/cron"
)

// goData is Go's own zone data. They end with the last change of a zone's rule,
// and what comes after it follows from the rule.
var goData = sync.OnceValues(func() (fs.FS, error) {
	root, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		return nil, err
	}
	return zip.OpenReader(filepath.Join(strings.TrimSpace(string(root)), "lib/time/zoneinfo.zip"))
})

// datasets are the data of a zone: Go's, and the machine's where it has any. The
// latter mostly list each change until 2037.
func datasets(t *testing.T, name string) map[string]*time.Location {
	t.Helper()
	own, err := goData()
	require.NoError(t, err)
	all := map[string]*time.Location{}
	for of, files := range map[string]fs.FS{"go": own, "machine": os.DirFS("/usr/share/zoneinfo")} {
		text, err := fs.ReadFile(files, name)
		if err != nil && of == "machine" {
			continue
		}
		require.NoError(t, err)
		all[of], err = time.LoadLocationFromTZData(name, text)
		require.NoError(t, err)
	}
	return all
}

func compileIn(t *testing.T, spec cron.Spec, zone *time.Location) *cron.Search {
	t.Helper()
	rule, err := cron.CompileIn(spec, zone)
	require.NoError(t, err, "%+v", spec)
	return rule.Search(t.Context())
}
