package archtest_test

import (
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// law says what each package may import of this module. Imports point down only;
// engines never import each other; what is not listed may not exist. The drawing in
// CONTRIBUTING.md shows it.
var law = map[string][]string{
	"lease":               {},
	"internal/aside":      {},
	"internal/cron":       {},
	"internal/secret":     {},
	"internal/sqlwords":   {},
	"internal/storable":   {},
	"internal/saturate":   {},
	"internal/protocol":   {"lease", "internal/saturate"},
	"heartbeat":           {"internal/protocol", "lease"},
	"poller":              {"internal/protocol", "internal/saturate", "lease"},
	"lock":                {"heartbeat", "lease"},
	"lock/locktest":       {"lock", "lease"},
	"lock/redislock":      {"lock", "lease", "internal/secret"},
	"store":               {"heartbeat", "internal/cron", "internal/storable", "lease"},
	"store/storetest":     {"durable", "operate", "store", "lock", "lease", "internal/claimplan", "internal/cron", "internal/protocol"}, // durable: schedules are evaluated by real workers; operate: a run is explained as it was provoked
	"internal/recur":      {"store", "internal/cron"},
	"internal/await":      {"store", "internal/recur"},
	"internal/claimplan":  {"store", "internal/saturate"},
	"internal/verify":     {"store", "lease"},
	"internal/stepping":   {"store", "lease", "internal/storable"},
	"internal/board":      {"store"},
	"internal/rules":      {"store", "lease", "internal/saturate", "internal/storable"},
	"internal/admit":      {"store", "internal/rules"},
	"db":                  {},
	"db/sqlite":           {},
	"internal/presence":   {"observe", "store", "internal/storable"},
	"durable":             {"observe", "internal/presence", "store", "heartbeat", "poller", "internal/admit", "internal/cron", "internal/await", "internal/claimplan", "internal/protocol", "internal/recur", "internal/saturate", "internal/stepping", "internal/storable", "internal/verify", "lease"},
	"limit":               {"durable", "store", "heartbeat", "lease"},
	"observe":             {"store", "lock", "lease"},
	"observe/metrics":     {"observe", "store"},
	"observe/events":      {"observe", "store", "internal/storable"},
	"observe/logs":        {"lease"},
	"observe/tracing":     {"observe", "store", "lease", "internal/storable"},
	"internal/otlp":       {},
	"internal/otlp/*":     {},
	"operate":             {"operate/access", "durable", "store", "lock", "lease", "internal/admit", "internal/recur", "internal/rules", "internal/storable"},
	"operate/access":      {},
	"operate/api":         {"operate", "operate/access", "internal/wire", "durable", "store"},
	"operate/dashboard":   {"operate", "operate/access", "internal/wire", "internal/storable", "durable", "store", "lock"},
	"internal/wire":       {"operate", "store", "lock", "internal/storable"},
	"durable/*":           {"durable", "store", "lease"},
	"durable/durabletest": {"durable", "store", "store/memory", "lease"}, // memory: what the kit for users runs on

	"store/memory":                      {"store", "lock", "lease", "internal/admit", "internal/board", "internal/rules"},
	"store/postgres":                    {"store", "lock", "lease", "internal/admit", "internal/aside", "internal/board", "internal/rules", "internal/secret", "internal/storable", "db", "store/postgres/internal/*"},
	"store/postgres/internal/conn":      {"store", "lease", "db", "internal/secret", "internal/sqlwords", "store/postgres/internal/queries", "store/postgres/internal/witness"},
	"store/postgres/internal/batches":   {"store", "lease", "internal/rules", "store/postgres/internal/conn", "store/postgres/internal/queries", "store/postgres/internal/schema"},
	"store/postgres/internal/steps":     {"store", "lease", "internal/rules", "store/postgres/internal/conn", "store/postgres/internal/queries", "store/postgres/internal/schema"},
	"store/postgres/internal/wake":      {"store", "lease", "internal/board", "store/postgres/internal/conn", "store/postgres/internal/queries"},
	"store/postgres/internal/numbers":   {"store", "internal/admit", "internal/rules", "store/postgres/internal/conn", "store/postgres/internal/queries", "store/postgres/internal/schema", "store/postgres/internal/wake"},
	"store/postgres/internal/reading":   {"store", "lease", "internal/admit", "internal/rules", "store/postgres/internal/conn", "store/postgres/internal/examine", "store/postgres/internal/numbers", "store/postgres/internal/queries", "store/postgres/internal/schema"},
	"store/postgres/internal/schema":    {"store", "lease", "db", "store/postgres/internal/conn", "store/postgres/internal/queries"},
	"store/postgres/internal/enqueue":   {"store", "lease", "internal/admit", "internal/rules", "store/postgres/internal/conn", "store/postgres/internal/numbers", "store/postgres/internal/queries", "store/postgres/internal/schema", "store/postgres/internal/wake"},
	"store/postgres/internal/examine":   {"store", "internal/rules", "internal/storable", "store/postgres/internal/conn", "store/postgres/internal/queries", "store/postgres/internal/schema"},
	"store/postgres/internal/timetable": {"store", "lease", "internal/aside", "internal/rules", "store/postgres/internal/conn", "store/postgres/internal/enqueue", "store/postgres/internal/numbers", "store/postgres/internal/queries", "store/postgres/internal/schema", "store/postgres/internal/wake"},
	"store/postgres/internal/settling":  {"store", "lease", "internal/rules", "store/postgres/internal/conn", "store/postgres/internal/queries", "store/postgres/internal/schema", "store/postgres/internal/wake", "store/postgres/internal/witness"},
	"store/postgres/internal/admission": {"store", "lease", "internal/admit", "internal/rules", "store/postgres/internal/conn", "store/postgres/internal/numbers", "store/postgres/internal/queries", "store/postgres/internal/schema", "store/postgres/internal/settling", "store/postgres/internal/wake"},
	"store/postgres/internal/claiming":  {"store", "lease", "internal/board", "store/postgres/internal/admission", "store/postgres/internal/conn", "store/postgres/internal/numbers", "store/postgres/internal/queries", "store/postgres/internal/schema", "store/postgres/internal/settling", "store/postgres/internal/wake"},
	"store/postgres/internal/leases":    {"store", "lease", "internal/aside", "internal/rules", "store/postgres/internal/conn", "store/postgres/internal/queries", "store/postgres/internal/schema", "store/postgres/internal/wake"},
	"store/postgres/internal/sweep":     {"store", "lease", "internal/admit", "internal/aside", "internal/rules", "store/postgres/internal/conn", "store/postgres/internal/queries", "store/postgres/internal/reading", "store/postgres/internal/schema", "store/postgres/internal/wake"},
	"store/postgres/internal/declaring": {"store", "lease", "internal/admit", "internal/rules", "store/postgres/internal/admission", "store/postgres/internal/conn", "store/postgres/internal/numbers", "store/postgres/internal/queries", "store/postgres/internal/reading", "store/postgres/internal/schema", "store/postgres/internal/wake"},
	"store/postgres/internal/*":         {},
	"store/sqlite":                      {"store", "lock", "lease", "internal/admit", "internal/aside", "internal/board", "internal/rules", "db/sqlite", "store/sqlite/internal/*"},
	"store/sqlite/internal/*":           {},
	"store/backend":                     {"store", "lock", "lease", "lock/redislock", "store/postgres", "store/sqlite", "store/memory"},

	"durablecmd/builtin":    {"durable", "store"},
	"durablecmd":            {"operate/access", "operate/api", "operate/dashboard", "internal/wire", "internal/storable", "observe", "observe/metrics", "observe/events", "observe/logs", "observe/tracing", "internal/otlp", "operate", "store/backend", "durablecmd/builtin", "durable", "store", "lock", "lease", "store/memory"},
	"durablecmd/internal/*": {"durable", "store", "lease"},
	"cmd/durable-worker":    {"durablecmd", "durablecmd/builtin", "durable"},
	"examples/*":            {"durablecmd", "limit", "observe", "observe/events", "observe/logs", "observe/tracing", "operate", "store/backend", "durable", "store", "store/postgres", "store/sqlite", "store/memory", "lock", "lease", "lock/redislock", "heartbeat"},
	"examples/*/internal/*": {"*"},

	"deploy":             {},
	"internal/pgtest":    {"db"},
	"internal/redistest": {},
	"internal/faulttest": {"durable", "store", "lease"},
	"internal/archtest":  {},
	"internal/release":   {},
	"internal/chaos":     {"*"},
	"internal/chaos/*":   {"*"},
}

// libraries says where each library may be imported; "*" is anywhere. A
// library that is not listed has no decision page yet.
var libraries = map[string][]string{
	"github.com/jackc/pgx/v5":        {"store/postgres", "store/postgres/internal/*", "internal/pgtest", "internal/chaos", "internal/chaos/*", "examples/*"},
	"github.com/lib/pq":              {"store/postgres"},
	"modernc.org/sqlite":             {"store/sqlite", "store/sqlite/internal/*"},
	"github.com/oklog/run":           {"durablecmd"},
	"github.com/caarlos0/env/v11":    {"durablecmd"},
	"github.com/alecthomas/kong":     {"durablecmd"},
	"github.com/netresearch/go-cron": {"internal/cron"},
	"github.com/redis/go-redis/v9":   {"lock/redislock"},
	"go.opentelemetry.io/otel":       {"observe/tracing", "internal/otlp", "durablecmd", "examples/*"},
	"golang.org/x/term":              {"durablecmd"},
	"golang.org/x/sys":               {"store/sqlite", "durablecmd"},
	"github.com/mattn/go-isatty":     {"durablecmd"},
	"github.com/google/uuid":         {"*"},
	"github.com/stretchr/testify":    {},
	"go.yaml.in/yaml/v3":             {"deploy", "operate/api"},
	"github.com/getkin/kin-openapi":  {},
	"go.uber.org/goleak":             {},
}

// forTests are the packages that may import what belongs to tests.
var forTests = []string{"durable/durabletest", "store/storetest", "lock/locktest", "internal/pgtest", "internal/redistest", "internal/faulttest", "internal/archtest", "internal/otlp/otlptest", "internal/chaos", "internal/chaos/*"}

// forTestsOnly are imported by tests and by nothing else. A contract suite
// uses plain testing, so that the author of a store elsewhere needs no library.
var forTestsOnly = []string{"github.com/stretchr/testify", "go.uber.org/goleak", "github.com/lib/pq", "github.com/getkin/kin-openapi"}

func matches(pattern, dir string) bool {
	ok, _ := path.Match(pattern, dir)
	return ok || pattern == "*"
}

func anyMatches(patterns []string, dir string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool { return matches(p, dir) })
}

// allowed finds the package's entry of the law.
func allowed(dir string) (imports []string, listed bool) {
	if imports, listed = law[dir]; listed {
		return imports, true
	}
	for pattern, imports := range law {
		if matches(pattern, dir) {
			return imports, true
		}
	}
	return nil, false
}

// importLaw finds imports inside the module that do not point down.
func importLaw(t tree) []string {
	var findings []string
	for _, f := range t.files {
		imports, listed := allowed(f.dir)
		if !listed {
			findings = append(findings, fmt.Sprintf("%s:1: package %s is not in the law of imports", f.path, f.dir))
			continue
		}
		if f.test {
			continue
		}
		for _, spec := range f.syntax.Imports {
			name, _ := strconv.Unquote(spec.Path.Value)
			inside, ours := strings.CutPrefix(name, module+"/")
			if ours && !anyMatches(imports, inside) {
				findings = append(findings, f.finding(spec, "%s must not import %s", f.dir, inside))
			}
		}
	}
	return findings
}

// libraryLaw finds libraries outside the places that may know them.
func libraryLaw(t tree) []string {
	var findings []string
	for _, f := range t.files {
		for _, spec := range f.syntax.Imports {
			name, _ := strconv.Unquote(spec.Path.Value)
			if first, _, _ := strings.Cut(name, "/"); !strings.Contains(first, ".") || name == module || strings.HasPrefix(name, module+"/") {
				continue
			}
			places, listed := libraryPlaces(name)
			onlyTests := slices.ContainsFunc(forTestsOnly, func(lib string) bool { return within(name, lib) })
			switch {
			case !listed:
				findings = append(findings, f.finding(spec, "%s has no decision page and no entry in the table of libraries", name))
			case onlyTests && !f.test:
				findings = append(findings, f.finding(spec, "%s is for tests", name))
			case (!onlyTests || len(places) > 0) && !anyMatches(places, f.dir):
				findings = append(findings, f.finding(spec, "%s must not import %s; only %s may", f.dir, name, strings.Join(places, ", ")))
			}
		}
	}
	return findings
}

func libraryPlaces(name string) ([]string, bool) {
	for lib, places := range libraries {
		if within(name, lib) {
			return places, true
		}
	}
	return nil, false
}

// within tells whether an import path is the library or a package of it.
func within(name, lib string) bool { return name == lib || strings.HasPrefix(name, lib+"/") }

// noTestingInProduction finds programs and libraries that carry test hooks.
func noTestingInProduction(t tree) []string {
	var findings []string
	for _, f := range t.files {
		if f.test || anyMatches(forTests, f.dir) {
			continue
		}
		for _, spec := range f.syntax.Imports {
			name, _ := strconv.Unquote(spec.Path.Value)
			inside, _ := strings.CutPrefix(name, module+"/")
			if within(name, "testing") || anyMatches(forTests, inside) {
				findings = append(findings, f.finding(spec, "production code must not import %s", name))
			}
		}
	}
	return findings
}

func TestImportsPointDown(t *testing.T) {
	holds(t, importLaw)
	finds(t, importLaw, map[string]string{
		"lease/lease.go":             "package lease\nimport _ \"" + module + "/durable\"\n",
		"store/memory/store.go":      "package memory\nimport _ \"" + module + "/store/postgres\"\n",
		"store/memory/store_test.go": "package memory_test\nimport _ \"" + module + "/durable/durabletest\"\n",
		"durable/run.go":             "package durable\nimport _ \"" + module + "/lease\"\n",
		"store/postgres/claim.go":    "package postgres\nimport _ \"" + module + "/store/postgres/internal/queries\"\n",
		"surprise/surprise.go":       "package surprise\n",
		"examples/some/main.go":      "package main\nimport _ \"" + module + "/durablecmd\"\n",
	}, "lease/lease.go:2: lease must not import durable", "store/memory/store.go:2: store/memory must not import store/postgres", "surprise/surprise.go:1: package surprise")
}

func TestLibrariesStayInTheirPlaces(t *testing.T) {
	holds(t, libraryLaw)
	finds(t, libraryLaw, map[string]string{
		"durable/a.go":           "package durable\nimport _ \"github.com/jackc/pgx/v5\"\n",
		"durable/b.go":           "package durable\nimport _ \"github.com/stretchr/testify/require\"\n",
		"durable/b_test.go":      "package durable_test\nimport _ \"github.com/stretchr/testify/require\"\n",
		"store/postgres/a.go":    "package postgres\nimport _ \"github.com/jackc/pgx/v5/pgxpool\"\n",
		"durable/c.go":           "package durable\nimport _ \"example.com/new/thing\"\n",
		"durable/durabletest.go": "package durable\nimport _ \"github.com/google/uuid\"\n",
	}, "durable/a.go:2: durable must not import", "durable/b.go:2: github.com/stretchr", "durable/c.go:2: example.com/new/thing has no decision page")
}

func TestNoTestingInProduction(t *testing.T) {
	holds(t, noTestingInProduction)
	finds(t, noTestingInProduction, map[string]string{
		"durable/a.go":             "package durable\nimport _ \"testing\"\n",
		"durable/b.go":             "package durable\nimport _ \"" + module + "/internal/pgtest\"\n",
		"durable/a_test.go":        "package durable_test\nimport _ \"testing\"\n",
		"durable/durabletest/a.go": "package durabletest\nimport _ \"testing\"\n",
	}, "durable/a.go:2: production", "durable/b.go:2: production")
}
