package archtest_test

import (
	"go/ast"
	"slices"
	"strconv"
	"testing"
)

// goroutines begin in these files only, each beside what waits for it.
var goroutines = excuses{
	"operate/bulks.go":                       "a bulk change that continues; Close waits for it",
	"operate/dashboard/together.go":          "the reads of one page; together waits for them",
	"operate/counting.go":                    "a count that pages do not wait for; Close waits for it",
	"operate/live.go":                        "the hub of live hints; closing its last stream waits for it",
	"durable/hooks_worker.go":                "calls of hooks; notify waits for them",
	"durable/tenure.go":                      "work starts the loops of one tenure and drain one that waits; both wait for them",
	"internal/await/watch.go":                "listens and looks for all that wait; the last of them waits for it",
	"durable/executor.go":                    "the goroutines that execute handlers; executor waits for them",
	"durable/materialize.go":                 "the second evaluator; materializeLoop waits for it",
	"heartbeat/keeper.go":                    "the renewal in flight; Run waits for it",
	"store/postgres/store.go":                "the sender of wake-ups; Close waits for it",
	"store/postgres/internal/wake/listen.go": "calls the caller's wake; Listen waits for it",
	"durablecmd/builtin/exec.go":             "waits for the command to end; perform waits for it",
	"durablecmd/events.go":                   "the sender of events and its heartbeat; the end of the feed waits for them",
	"observe/logs/writer.go":                 "writes what waits; Flush waits for it, but not for a write that does not return",
	"observe/events/stream.go":               "calls the user's sink; send waits for it",
	"durablecmd/main.go":                     "watches for signals; the function that ends the verb's context waits for it",
	"durablecmd/serve.go":                    "the HTTP server; serve waits for it",
	"examples/webhook/main.go":               "the sender of events; the function waits for it",
	"examples/timer/main.go":                 "the hosts; timer waits for them",
	"examples/limit-tenant/main.go":          "a worker; the function waits for it",
	"examples/sql-enqueue/main.go":           "a worker; the function waits for it",
	"examples/limit-mutex/main.go":           "a worker; the function waits for it",
	"examples/limit-queue/main.go":           "two workers; the function waits for them",
	"examples/limit-rate/main.go":            "a worker; the function waits for it",
	"examples/limit-share/main.go":           "a worker; the function waits for it",
	"limit/permit.go":                        "the keeper of one permit; Do waits for it",
	"examples/lock/main.go":                  "hosts and their keepers; the function waits for them",
	"examples/schedule/main.go":              "a worker; work waits for it",
	"examples/fence/main.go":                 "two workers; fence waits for them",
	"examples/service/main.go":               "the worker and the HTTP server; service waits for both",
	"examples/progress/main.go":              "the worker; progress waits for it",
	"examples/steps/main.go":                 "the worker; book waits for it",
	"examples/agent/main.go":                 "the worker; play waits for it",
	"examples/saga/main.go":                  "the worker; play waits for it",
	"examples/drip/main.go":                  "the worker; play waits for it",
	"examples/fulfil/main.go":                "the worker; play waits for it",
	"examples/nightly/main.go":               "the worker; play waits for it",
	"examples/import/main.go":                "the worker; play waits for it",
	"internal/stepping/branch.go":            "the functions of Parallel, which waits for them",
	"lock/call.go":                           "calls to the store, and what gives claims back; Close waits for them",
	"lock/waits.go":                          "hears of releases elsewhere; the last call that waits, waits for it",
}

// callbacks of timers and of contexts run in goroutines of their own, which what
// started them does not wait for. They are set in these files only, each with what
// stops it and why one that has begun does no harm after that.
var callbacks = excuses{
	"observe/events/stream.go":                  "ends the last try some seconds after the stream's context; stopped when Run returns, and then it ends what has ended",
	"lock/until.go":                             "ends the context of a grant; stopped with it, and an ended context stays ended",
	"lock/redislock/waits.go":                   "closes a subscription; stopped when the wait ends",
	"durable/tenure.go":                         "ends the last context of a drain; stopped when Run returns",
	"durable/claim.go":                          "logs a slow isolated run, and has lost claims noticed; stopped when the claim ends",
	"durable/inflight.go":                       "wakes a drain that waits for handlers; stopped when it has waited",
	"durable/stuck.go":                          "reports a handler that does not return; stopped when it has, and the outcome is written once",
	"durable/progress.go":                       "sends the progress that waited; the reports' turn keeps it from a run that has ended",
	"durable/calls.go":                          "answers a wake-up when its run is due; a drain stops all",
	"store/postgres/internal/wake/trailing.go":  "sends a wake-up after a caller's commit; Close stops it and waits for the sender",
	"store/postgres/internal/schema/migrate.go": "logs that another process migrates; stopped when the wait ends",
	"examples/service/main.go":                  "shuts the HTTP server down; the function waits for it",
}

// clocks are read in these files only. Everything else compares times of the
// store, or elapsed time that was handed in.
var clocks = excuses{
	"lease/elapsed.go":                           "the worker's own clock, elapsed time only",
	"store/memory/store.go":                      "the default clock of the store",
	"store/sqlite/clock.go":                      "the default clock of the store",
	"store/sqlite/store.go":                      "how long one call has waited for another process to let go of the file",
	"store/postgres/internal/enqueue/dues.go":    "whether a wake-up is worth sending; a hint, with an hour of margin",
	"store/postgres/internal/conn/batch.go":      "what is left of a context's deadline",
	"examples/webhook/main.go":                   "the receiver holds the timestamp of a signature against its clock",
	"examples/limit-rate/main.go":                "the API of the example counts its calls in any second",
	"limit/wait.go":                              "what is left of a context's deadline",
	"durable/execute.go":                         "how long after it was due a run begins, and how long its handler takes; figures that decide nothing",
	"observe/events/":                            "when an event was noted, sent and signed, for its receiver; figures that decide nothing",
	"observe/tally_hooks.go":                     "how late attempts begin, and how long they take; figures that decide nothing",
	"observe/tracing/":                           "when spans begin and end, and whether an attempt is late for its parent; they decide nothing about runs",
	"internal/otlp/exporter.go":                  "when the next line about lost spans may be logged",
	"durablecmd/":                                "ages that people read, and how long a demo has lasted",
	"operate/dashboard/":                         "how old shared figures are, and how long a hint may take to be written",
	"operate/operator.go":                        "the default clock of previews, and of how long a list searches",
	"operate/access/handler.go":                  "the default clock of sessions and of failed logins",
	"operate/access/lobby.go":                    "deadlines of a stranger's connection, as net/http wants them",
	"operate/access/proxy.go":                    "the clock of callers that have none of their own",
	"operate/access/tokens.go":                   "the clock of callers that have none of their own",
	"lock/observe.go":                            "whether a caller's deadline has passed, which is such an instant",
	"store/postgres/internal/examine/examine.go": "round trips and the difference to the server's clock, told to the operator and used for nothing",
	"store/postgres/internal/conn/connect.go":    "the difference to the server's clock, told to the operator and used for nothing",
}

// environment is read in these files only.
var environment = excuses{
	"durablecmd/main.go":        "the program's own start",
	"internal/release/build.go": "what it builds with, and the instant that a build bears",
}

// starts finds where goroutines begin: go statements, and methods called Go
// (of sync.WaitGroup and its kind).
func starts(f *source) []string {
	var findings []string
	ast.Inspect(f.syntax, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GoStmt:
			findings = append(findings, f.finding(n, "a goroutine begins here"))
		case *ast.CallExpr:
			if s, ok := n.Fun.(*ast.SelectorExpr); ok && s.Sel.Name == "Go" {
				findings = append(findings, f.finding(n, "a goroutine begins here"))
			}
		}
		return true
	})
	return findings
}

// uses finds uses of some names of a package of the standard library.
func uses(f *source, pkg string, names ...string) []string {
	local := localName(f, pkg)
	if local == "" {
		return nil
	}
	var findings []string
	ast.Inspect(f.syntax, func(n ast.Node) bool {
		s, ok := n.(*ast.SelectorExpr)
		if !ok || !slices.Contains(names, s.Sel.Name) {
			return true
		}
		if x, ok := s.X.(*ast.Ident); ok && x.Name == local {
			findings = append(findings, f.finding(s, "%s.%s is used here", pkg, s.Sel.Name))
		}
		return true
	})
	return findings
}

// localName is the name a file gives to an import; empty when it has none.
func localName(f *source, pkg string) string {
	for _, spec := range f.syntax.Imports {
		if name, _ := strconv.Unquote(spec.Path.Value); name == pkg {
			if spec.Name != nil {
				return spec.Name.Name
			}
			return pkg
		}
	}
	return ""
}

func goroutineRule(e excuses) rule {
	return func(t tree) []string { return judge(t.production(), e, starts) }
}

func callbackRule(e excuses) rule {
	return func(t tree) []string {
		return judge(t.production(), e, func(f *source) []string {
			return append(uses(f, "time", "AfterFunc"), uses(f, "context", "AfterFunc")...)
		})
	}
}

func clockRule(e excuses) rule {
	return func(t tree) []string {
		return judge(t.production(), e, func(f *source) []string { return uses(f, "time", "Now", "Since", "Until") })
	}
}

func environmentRule(e excuses) rule {
	return func(t tree) []string {
		return judge(t.production(), e, func(f *source) []string { return uses(f, "os", "Getenv", "LookupEnv", "Environ", "ExpandEnv") })
	}
}

// noSkips finds tests that may not run: a skipped test proves nothing.
func noSkips(t tree) []string {
	var findings []string
	for _, f := range t.files {
		ast.Inspect(f.syntax, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			s, ok := call.Fun.(*ast.SelectorExpr)
			if !ok || !slices.Contains([]string{"Skip", "Skipf", "SkipNow"}, s.Sel.Name) {
				return true
			}
			if x, ok := s.X.(*ast.Ident); ok && slices.Contains([]string{"t", "tb", "b"}, x.Name) {
				findings = append(findings, f.finding(call, "a test that is skipped proves nothing"))
			}
			return true
		})
	}
	return findings
}

func TestGoroutinesBeginWhereTheyAreWaitedFor(t *testing.T) {
	holds(t, goroutineRule(goroutines))
	finds(t, goroutineRule(excuses{"b/": "known", "c.go": "stale"}), map[string]string{
		"a.go":      "package a\nfunc f() {\n\tgo f()\n}\n",
		"a_test.go": "package a\nfunc g() {\n\tgo f()\n}\n",
		"b/b.go":    "package b\nimport \"sync\"\nfunc f() {\n\tvar g sync.WaitGroup\n\tg.Go(f)\n}\n",
		"c.go":      "package a\n",
		"d.go":      "package a\nimport \"sync\"\nfunc h() {\n\tvar g sync.WaitGroup\n\tg.Go(f)\n}\n",
	}, "a.go:3: a goroutine begins here", "c.go: this exception excuses nothing", "d.go:5: a goroutine begins here")
}

func TestClocksAreReadInFewPlaces(t *testing.T) {
	holds(t, clockRule(clocks))
	finds(t, clockRule(excuses{"b.go": "known"}), map[string]string{
		"a.go":      "package a\nimport \"time\"\nvar clock = time.Now\n",
		"b.go":      "package a\nimport \"time\"\nvar t = time.Now()\n",
		"c.go":      "package a\nimport clock \"time\"\nvar u = clock.Since(t)\n",
		"d.go":      "package a\ntype now struct{ Now int }\nvar time now\nvar v = time.Now\n",
		"a_test.go": "package a\nimport \"time\"\nvar w = time.Now()\n",
	}, "a.go:3: time.Now", "c.go:3: time.Since")
}

func TestEnvironmentIsReadByTheProgram(t *testing.T) {
	holds(t, environmentRule(environment))
	finds(t, environmentRule(nil), map[string]string{
		"durable/a.go": "package durable\nimport \"os\"\nvar home = os.Getenv(\"HOME\")\n",
		"durable/b.go": "package durable\nimport \"os\"\nvar pid = os.Getpid()\n",
	}, "durable/a.go:3: os.Getenv")
}

func TestNothingIsSkipped(t *testing.T) {
	holds(t, noSkips)
	finds(t, noSkips, map[string]string{
		"a_test.go": "package a\nimport \"testing\"\nfunc TestA(t *testing.T) {\n\tt.Skip(\"not today\")\n}\n",
		"b.go":      "package a\ntype step struct{ Skip int }\nvar s = step{Skip: 1}\n",
	}, "a_test.go:4: a test that is skipped")
}

func TestCallbacksAreSetWhereTheyAreStopped(t *testing.T) {
	holds(t, callbackRule(callbacks))
	finds(t, callbackRule(excuses{"b.go": "known", "c.go": "stale"}), map[string]string{
		"a.go": "package a\nimport \"time\"\nvar x = time.AfterFunc(0, nil)\n",
		"b.go": "package a\nimport \"context\"\nvar y = context.AfterFunc(nil, nil)\n",
	}, "a.go:3: time.AfterFunc is used here", "c.go: this exception excuses nothing")
}
