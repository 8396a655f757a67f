package main_test

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/stretchr/testify/require"

	release "github.com/durable-worker/durable-worker/internal/release"
)

// component is what the tests read of one.
type component struct {
	PURL     string
	Licenses []struct{ License struct{ ID, Name string } }
}

var made = time.Date(2026, 11, 22, 20, 0, 0, 0, time.UTC)

// The stock worker is small enough, says the version it was built as, and lists all
// that it contains.
func TestTheProgramOfARelease(t *testing.T) {
	t.Parallel()
	program := filepath.Join(t.TempDir(), "durable-worker.exe")
	sbom, err := release.Build(t.Context(), filepath.Join("..", ".."), "v1.2.3", runtime.GOOS, runtime.GOARCH, program, made)
	require.NoError(t, err)
	info, err := os.Stat(program)
	require.NoError(t, err)
	require.LessOrEqual(t, info.Size(), release.SizeCap)
	said, err := exec.Command(program, "version").Output() //nolint:gosec // built by this test
	require.NoError(t, err)
	require.Contains(t, string(said), " v1.2.3 (")
	text, err := os.ReadFile(program)
	require.NoError(t, err)
	here, err := filepath.Abs(filepath.Join("..", ".."))
	require.NoError(t, err)
	require.NotContains(t, string(text), here, "no paths of the machine")

	var bill struct {
		Format   string `json:"bomFormat"`
		Serial   string `json:"serialNumber"`
		Metadata struct{ Component struct{ PURL string } }
		Parts    []component `json:"components"`
	}
	require.NoError(t, json.Unmarshal(sbom, &bill))
	require.Equal(t, "CycloneDX", bill.Format)
	require.Regexp(t, "^urn:uuid:[0-9a-f-]{36}$", bill.Serial)
	require.Equal(t, "pkg:golang/github.com/durable-worker/durable-worker@v1.2.3", bill.Metadata.Component.PURL)
	for _, name := range []string{"std", "github.com/jackc/pgx/v5", "modernc.org/sqlite", "github.com/redis/go-redis/v9"} {
		require.True(t, slices.ContainsFunc(bill.Parts, func(p component) bool {
			return strings.HasPrefix(p.PURL, "pkg:golang/"+name+"@") && len(p.Licenses) > 0
		}), name)
	}
}

// A dependency that is new in the program shows here, with its licence.
func TestLicencesOfTheProgram(t *testing.T) {
	known, err := os.ReadFile("testdata/licences.txt")
	require.NoError(t, err)
	var found bytes.Buffer
	t.Chdir(filepath.Join("..", ".."))
	require.NoError(t, release.Run(t.Context(), &found, []string{"licences"}))
	require.Equal(t, string(known), found.String(), "go run ./internal/release licences >internal/release/testdata/licences.txt")
}

func TestALicenceHasToBeAllowed(t *testing.T) {
	t.Parallel()
	read := func(files map[string]string) ([]string, error) {
		dir := t.TempDir()
		for name, text := range files {
			require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
		}
		return release.ReadLicence(dir)
	}
	const mit, bsd = "Permission is hereby granted, free of\ncharge, to any person obtaining a copy", "Redistributions in binary form must reproduce the above\nNeither the name of"
	ids, err := read(map[string]string{"LICENSE": mit, "COPYING.other": bsd, "LICENSE-3RD-PARTY": "GNU General Public License"})
	require.NoError(t, err)
	require.Equal(t, []string{"BSD-3-Clause", "MIT"}, ids)
	for name, files := range map[string]map[string]string{
		"GPL is not among":        {"LICENSE": "GNU GENERAL PUBLIC LICENSE Version 3"},
		"MPL-2.0 is not among":    {"LICENSE": mit, "NOTICE": "Mozilla Public License Version 2.0"},
		"is no licence that is":   {"LICENSE.md": "All rights reserved."},
		"example.com/m: no licen": {"README": mit},
	} {
		_, err := read(files)
		require.ErrorContains(t, err, name)
	}
	require.Equal(t, []string{"Apache-2.0"}, release.Classify("Apache License\n   Version 2.0, January 2004"))
	require.NotContains(t, release.Allowed, "GPL")
}

func TestArchivesDependOnTheirContentsOnly(t *testing.T) {
	t.Parallel()
	tarred, zipped, err := release.Pack("program", []byte("text"), made)
	require.NoError(t, err)
	again, zippedAgain, err := release.Pack("program", []byte("text"), made)
	require.NoError(t, err)
	require.Equal(t, tarred, again)
	require.Equal(t, zipped, zippedAgain)

	compressed, err := gzip.NewReader(bytes.NewReader(tarred))
	require.NoError(t, err)
	files := tar.NewReader(compressed)
	header, err := files.Next()
	require.NoError(t, err)
	require.Equal(t, "dir/program", header.Name)
	require.Equal(t, fs.FileMode(0o755), header.FileInfo().Mode())
	require.True(t, header.ModTime.Equal(made))
	text, err := io.ReadAll(files)
	require.NoError(t, err)
	require.Equal(t, "text", string(text))
	archive, err := zip.NewReader(bytes.NewReader(zipped), int64(len(zipped)))
	require.NoError(t, err)
	require.Equal(t, "dir/program", archive.File[0].Name)
	require.Equal(t, fs.FileMode(0o755), archive.File[0].Mode())
}

func TestNotesAreTheSectionOfTheVersion(t *testing.T) {
	t.Parallel()
	const changelog = "# Changelog\n\n## [Unreleased]\n\nsoon\n\n## [0.2.0] - 2026-12-01\n\n### Added\n\n- two\n\n## [0.1.0] - 2026-11-30\n\n- one\n"
	notes, err := release.Section(changelog, "0.2.0")
	require.NoError(t, err)
	require.Equal(t, "### Added\n\n- two\n", notes)
	notes, err = release.Section(changelog, "0.1.0")
	require.NoError(t, err)
	require.Equal(t, "- one\n", notes)
	_, err = release.Section(changelog, "0.3.0")
	require.ErrorContains(t, err, "no section `## [0.3.0] - YEAR-MONTH-DAY`")
	_, err = release.Section("## [0.3.0] - 2026-12-02\n\n## [0.2.0] - 2026-12-01\n- two\n", "0.3.0")
	require.ErrorContains(t, err, "says nothing")
}

func TestWhatIsAskedForIsChecked(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{nil, {"publish"}, {"dist", "-version", "1.2.3"}, {"dist", "-version", "v1.2"}, {"notes", "-version", "v01.2.3"}, {"size", "-small"}} {
		require.Error(t, release.Run(t.Context(), io.Discard, args), args)
	}
	full := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(full, "old.zip"), nil, 0o600))
	require.ErrorContains(t, release.Run(t.Context(), io.Discard, []string{"dist", "-out", full}), "is not empty")
}

func TestSizesAreThoseOfCode(t *testing.T) {
	t.Parallel()
	require.Equal(t, map[string]int64{"SQLite": 150, "Go's library": 7, "durable itself": 3}, release.ByPart(
		"  401000  100 T modernc.org/sqlite/lib._sqlite3VdbeExec\n  401100  50 t github.com/durable-worker/durable-worker/store/sqlite.(*Store).Claim\n"+
			"  401200  7 T type:.eq.net/http.Request\n  401300  3 T github.com/durable-worker/durable-worker/durable.Unique\n  501000 33554432 D crypto.memory\n  U abort\n"))
}

func TestSourcesAreThoseOfTheModule(t *testing.T) {
	t.Parallel()
	file := &fstest.MapFile{}
	found := []string{}
	require.NoError(t, fs.WalkDir(release.Sources(fstest.MapFS{
		"go.mod": file, "durable/a.go": file, ".git/config": file, "bench/go.mod": file, "bench/main.go": file, "dist/x.zip": file, "deploy/dist/a.go": file,
	}), ".", func(name string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			found = append(found, name)
		}
		return err
	}))
	require.Equal(t, []string{"deploy/dist/a.go", "durable/a.go", "go.mod"}, found)
}
