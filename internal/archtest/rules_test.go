package archtest_test

import (
	"fmt"
	"go/ast"
	"go/token"
	"io/fs"
	"path"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// rulesDir is where a decision that all stores make is written.
const rulesDir = "internal/rules"

// engines are the stores, which ask it.
var engines = []string{"store/memory", "store/sqlite", "store/postgres"}

// decidedElsewhere finds places outside of internal/rules that decide by a crash
// policy.
func decidedElsewhere(t tree) []string {
	var findings []string
	for _, f := range t.written() {
		if f.dir == rulesDir {
			continue
		}
		ast.Inspect(f.syntax, func(n ast.Node) bool {
			var of []ast.Expr
			switch n := n.(type) {
			case *ast.CaseClause:
				of = n.List
			case *ast.IfStmt:
				if anyMatches(engines, f.dir) {
					of = []ast.Expr{n.Cond}
				}
			}
			for _, expr := range of {
				if mentions(expr, "CrashDead") {
					findings = append(findings, f.finding(expr, "the crash policy decides here: ask %s", rulesDir))
				}
			}
			return true
		})
	}
	return findings
}

func mentions(expr ast.Expr, name string) (found bool) {
	ast.Inspect(expr, func(n ast.Node) bool {
		ident, ok := n.(*ast.Ident)
		found = found || ok && ident.Name == name
		return true
	})
	return found
}

// storedWords are the text constants of internal/rules, without the kinds of things
// in the audit, which are words of every day.
func storedWords(t tree) map[string]string {
	words := map[string]string{}
	for _, f := range t.production() {
		if f.dir != rulesDir {
			continue
		}
		ast.Inspect(f.syntax, func(n ast.Node) bool {
			spec, ok := n.(*ast.ValueSpec)
			if !ok || len(spec.Names) != len(spec.Values) {
				return true
			}
			for i, name := range spec.Names {
				if literal, ok := spec.Values[i].(*ast.BasicLit); ok && literal.Kind == token.STRING && !strings.HasPrefix(name.Name, "Kind") {
					text, _ := strconv.Unquote(literal.Value)
					words[text] = name.Name
				}
			}
			return true
		})
	}
	return words
}

// wordsElsewhere finds stored words that a store, or its SQL, writes itself.
func wordsElsewhere(t tree) []string {
	words := storedWords(t)
	var findings []string
	for _, f := range t.production() {
		if !anyMatches(engines, f.dir) {
			continue
		}
		ast.Inspect(f.syntax, func(n ast.Node) bool {
			if call, ok := n.(*ast.CallExpr); ok {
				if called, ok := call.Fun.(*ast.SelectorExpr); ok && strings.EqualFold(called.Sel.Name, "fail") {
					return false // it names the call that has failed
				}
			}
			literal, ok := n.(*ast.BasicLit)
			if !ok || literal.Kind != token.STRING {
				return true
			}
			text, _ := strconv.Unquote(literal.Value)
			if name, stored := words[text]; stored {
				findings = append(findings, f.finding(literal, "%q is rules.%s", text, name))
			}
			return true
		})
	}
	inQueries(t, func(file, text string) {
		for word, name := range words {
			if i := strings.Index(text, "'"+word+"'"); i >= 0 {
				findings = append(findings, fmt.Sprintf("%s:%d: %q is rules.%s: make it a parameter", file, lineOf(text, i), word, name))
			}
		}
	})
	return findings
}

// inQueries reads the SQL files of queries.
func inQueries(t tree, each func(file, text string)) {
	for _, file := range t.other {
		if path.Ext(file) != ".sql" || !strings.Contains(file, "/queries/") && !strings.Contains(file, "/statements/") {
			continue
		}
		text, err := fs.ReadFile(t.root, file)
		if err != nil {
			text = nil
		}
		each(file, string(text))
	}
}

var (
	entersLine = regexp.MustCompile(`INSERT INTO durable\.(ready|waiting)\b`)
	becomesDue = regexp.MustCompile(`(?s)INSERT INTO durable\.runs\b|UPDATE durable\.runs\s+SET[^;]*?\bstate = (?:0,|durable\.pending\(\),|CASE[^;]*?\b(?:ELSE|THEN) (?:0\b|durable\.pending\(\))|CASE[^;]*?@outcomes)`)
	writesRuns = map[string]string{"ready": "-- block: enter-line", "waiting": "-- block: enter-waiting"}
)

// linesOf are the lines that the blocks of a name enter.
var linesOf = map[string]string{"enter-line": "ready", "enter-waiting": "waiting"}

// mayEnterLine are statements that give a run its row of ready in another way.
var mayEnterLine = map[string]string{
	"MendReady":      "repairs a row that is missing, which the others never are",
	"MoveWaiters":    "gives a waiter the line of another of its gates",
	"EnqueueLimited": "stores runs that are new and have no permits, for which the block looks",
}

// oneSort are statements whose runs are all limited, or all not, so that they enter the
// lines of one sort only.
var oneSort = map[string]string{
	"EnqueueRuns": "ready", "EnqueueAlike": "ready", "EnqueueNew": "ready", "EnqueueKeyedRuns": "ready", "EnqueueNewKeyed": "ready",
	"MaterializeRuns": "ready", "MaterializeNew": "ready", "SettleRuns": "ready", "EnqueueLimited": "waiting", "SettleLimited": "waiting",
}

// strandedPending finds statements that store runs, or make runs pending, and do not let
// them enter a line of each sort that they may be of.
func strandedPending(t tree) []string {
	var findings []string
	inQueries(t, func(file, text string) {
		for _, statement := range strings.Split(text, "-- name: ")[1:] {
			name := strings.Fields(statement)[0]
			if !becomesDue.MatchString(statement) {
				continue
			}
			for _, line := range []string{"ready", "waiting"} {
				if only := oneSort[name]; (only == "" || only == line) && !strings.Contains(statement, writesRuns[line]) &&
					(mayEnterLine[name] == "" || !strings.Contains(statement, "INSERT INTO durable."+line)) {
					findings = append(findings, file+": "+name+" makes runs pending that do not enter "+line)
				}
			}
		}
	})
	return findings
}

// strayLines finds inserts of runs into their lines outside of the blocks for that.
func strayLines(t tree) []string {
	var findings []string
	inQueries(t, func(file, text string) {
		var block, statement string
		for i, line := range strings.Split(text, "\n") {
			if m := blockBegin.FindStringSubmatch(line); m != nil {
				block = m[1]
			}
			switch {
			case line == "-- end":
				block = ""
			case strings.HasPrefix(line, "-- name: "):
				statement = strings.Fields(line)[2]
			}
			m := entersLine.FindStringSubmatch(line)
			if m != nil && linesOf[block] != m[1] && mayEnterLine[statement] == "" {
				findings = append(findings, fmt.Sprintf("%s:%d: a run enters its line outside of a block enter-line", file, i+1))
			}
		}
	})
	return findings
}

func TestRulesAreWrittenOnce(t *testing.T) {
	holds(t, decidedElsewhere)
	holds(t, wordsElsewhere)
	holds(t, strayLines)
	holds(t, strandedPending)
	if len(storedWords(house(t))) < 8 {
		t.Errorf("the words of %s are not found: %v", rulesDir, storedWords(house(t)))
	}
	finds(t, decidedElsewhere, map[string]string{
		"internal/rules/crash.go": "package rules\nfunc f() { switch { case p == CrashDead: } }\n",
		"store/memory/a.go":       "package memory\nfunc f() {\n\tswitch {\n\tcase p == store.CrashDead:\n\t}\n\tif p == store.CrashDead {\n\t}\n}\n",
		"durable/a.go":            "package durable\nfunc f() { if p == CrashDead { } }\n",
	}, "store/memory/a.go:4: the crash policy", "store/memory/a.go:6: the crash policy")
	finds(t, wordsElsewhere, map[string]string{
		"internal/rules/words.go": "package rules\nconst (\n\tGone = \"its lease has gone\"\n\tKindRun = \"run\"\n)\n",
		"store/sqlite/a.go":       "package sqlite\nvar a, b = \"its lease has gone\", \"run\"\n",
		"db/queries/a.sql":        "-- its lease has gone\nSELECT 'its lease has gone', 'run';\n",
	}, "store/sqlite/a.go:2: \"its lease has gone\" is rules.Gone", "db/queries/a.sql:2: \"its lease has gone\" is rules.Gone")
	finds(t, strayLines, map[string]string{
		"db/queries/a.sql": "-- name: A :exec\n-- block: enter-line of a\nINSERT INTO durable.ready\n-- end\n-- name: MendReady :exec\nINSERT INTO durable.ready\n",
		"db/queries/b.sql": "-- name: B :exec\n-- block: enter-line of b\nINSERT INTO durable.waiting\n-- end\nINSERT INTO durable.ready\n",
	}, "db/queries/b.sql:3: a run enters", "db/queries/b.sql:5: a run enters")
	finds(t, strandedPending, map[string]string{
		"db/queries/a.sql": "-- name: A :exec\nUPDATE durable.runs\nSET state = 0,\n    due_at = now()\n-- block: enter-line of a\n-- end\n-- name: EnqueueNew :exec\nINSERT INTO durable.runs\n",
		"db/queries/b.sql": "-- name: B :exec\nUPDATE durable.runs\nSET state = durable.pending(),\n    due_at = now()\n-- block: enter-waiting of a\n-- end\n",
	}, "db/queries/b.sql: B makes runs pending that do not enter ready", "db/queries/a.sql: A makes runs pending that do not enter waiting", "db/queries/a.sql: EnqueueNew makes runs pending that do not enter ready")
}
