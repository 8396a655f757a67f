package main

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
)

// sizeCap is how large the stripped program may be, in bytes: 30 MB, 8 for what
// operators see (metrics, API, pages), and 1 for steps, inputs, children and dependents.
const sizeCap = 40e6

// parts say which packages belong to which part of the program, the first that fits.
//
//nolint:gochecknoglobals // a table that never changes
var parts = []struct{ name, prefix string }{
	{"SQLite", "modernc.org/"}, {"SQLite", "github.com/remyoudompheng/"}, {"SQLite", "github.com/dustin/"}, {"SQLite", "github.com/ncruces/"},
	{"SQLite", module + "/store/sqlite"}, {"SQLite", module + "/db/sqlite"},
	{"PostgreSQL", "github.com/jackc/"}, {"PostgreSQL", module + "/store/postgres"}, {"PostgreSQL", module + "/db"},
	{"PostgreSQL", "golang.org/x/text/"},
	{"Redis locks", "github.com/redis/"}, {"Redis locks", "github.com/cespare/"}, {"Redis locks", module + "/lock/redislock"},
	{"traces", "go.opentelemetry.io/"}, {"traces", "github.com/go-logr/"}, {"traces", module + "/observe/tracing"},
	{"command line", "github.com/alecthomas/"}, {"command line", "github.com/caarlos0/"}, {"command line", "golang.org/x/term"},
	{"command line", module + "/durablecmd"}, {"command line", "main."},
	{"durable itself", module + "/"},
	{"other libraries", "github.com/"}, {"other libraries", "golang.org/"}, {"other libraries", "go.uber.org/"}, {"other libraries", "go.yaml.in/"},
}

// size prints how large the program is, by part, and fails when it is too large.
func (r release) size(ctx context.Context) error {
	scratch, err := os.MkdirTemp("", "durable-release-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(scratch) }()
	here := platform{runtime.GOOS, runtime.GOARCH}
	stripped, whole := filepath.Join(scratch, "stripped"), filepath.Join(scratch, "whole")
	if err := r.build(ctx, here, stripped); err != nil {
		return err
	}
	if err := r.compile(ctx, here, whole, ""); err != nil {
		return err
	}
	symbols, err := r.goTool(ctx, nil, "tool", "nm", "-size", whole)
	if err != nil {
		return err
	}
	info, err := os.Stat(stripped)
	if err != nil {
		return err
	}
	sizes := byPart(symbols)
	code := int64(0)
	for _, n := range sizes {
		code += n
	}
	r.say("   code  in all  part (in all: with its share of tables and constants)")
	for _, name := range slices.SortedFunc(maps.Keys(sizes), func(a, b string) int { return cmp.Compare(sizes[b], sizes[a]) }) {
		r.say("%7.1f %7.1f  %s", megabytes(sizes[name]), megabytes(sizes[name])*float64(info.Size())/float64(code), name)
	}
	r.say("%7.1f %7.1f  MB, %s, stripped, of at most %.0f", megabytes(code), megabytes(info.Size()), here, sizeCap/1e6)
	if float64(info.Size()) > sizeCap {
		return fmt.Errorf("the program has %d bytes, more than %.0f", info.Size(), float64(sizeCap))
	}
	return nil
}

func megabytes(n int64) float64 { return float64(n) / 1e6 }

// byPart adds up the code that `go tool nm -size` prints.
func byPart(symbols string) map[string]int64 {
	sizes := map[string]int64{}
	for line := range strings.Lines(symbols) {
		fields := strings.Fields(line) // address, size, type, name
		if len(fields) < 4 || fields[2] != "T" && fields[2] != "t" {
			continue
		}
		if n, err := strconv.ParseInt(fields[1], 10, 64); err == nil {
			sizes[partOf(strings.Join(fields[3:], " "))] += n
		}
	}
	return sizes
}

// partOf is the part of a function, by its package.
func partOf(name string) string {
	name = strings.TrimPrefix(strings.TrimPrefix(name, "type:."), "eq.")
	for _, p := range parts {
		if strings.HasPrefix(name, p.prefix) {
			return p.name
		}
	}
	return "Go's library"
}
