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
	blockBegin = regexp.MustCompile(`^-- block: ([a-z-]+)(?: of (\w+))?$`)
	entersLine = regexp.MustCompile(`INSERT INTO durable\.(ready|waiting)\b`)
	becomesDue = regexp.MustCompile(`(?s)INSERT INTO durable\.runs\b|UPDATE durable\.runs\s+SET[^;]*?\bstate = (?:0,|CASE[^;]*?\b(?:ELSE|THEN) 0\b|CASE[^;]*?@outcomes)`)
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

// unlikeBlocks finds blocks of SQL of one name that differ, and blocks that do not
// end or stand only once. The block of a CTE ("-- block: NAME of CTE") may name it
// differently each time, and a line may begin anywhere.
func unlikeBlocks(t tree) []string {
	var findings []string
	type place struct {
		where, text string
		times       int
	}
	known := map[string]*place{}
	inQueries(t, func(file, text string) {
		var name, of, where, statement string
		var body []string
		open := false
		for i, line := range strings.Split(text, "\n") {
			at := fmt.Sprintf("%s:%d", file, i+1)
			if m := blockBegin.FindStringSubmatch(line); m != nil {
				if open {
					findings = append(findings, where+": the block "+name+" does not end")
				}
				name, of, where, body, open = m[1], m[2], at, nil, true
				continue
			}
			switch {
			case line == "-- end" && open:
				open = false
				same := alike(body, of)
				if known[name] == nil {
					known[name] = &place{where: where, text: same}
				}
				if known[name].times++; known[name].text != same {
					findings = append(findings, fmt.Sprintf("%s: the block %s differs from that of %s", where, name, known[name].where))
				}
			case strings.HasPrefix(line, "-- name: "):
				statement = strings.Fields(line)[2]
			case open:
				body = append(body, line)
			}
			if m := entersLine.FindStringSubmatch(line); m != nil && (!open || linesOf[name] != m[1]) && mayEnterLine[statement] == "" {
				findings = append(findings, at+": a run enters its line outside of a block enter-line")
			}
		}
		if open {
			findings = append(findings, where+": the block "+name+" does not end")
		}
	})
	for name, one := range known {
		if one.times == 1 {
			findings = append(findings, one.where+": the block "+name+" stands only once")
		}
	}
	return findings
}

// alike is the text of a block without its indentation, its last semicolon and the
// name of its CTE.
func alike(lines []string, of string) string {
	text := strings.TrimSuffix(strings.Join(strings.Fields(strings.Join(lines, " ")), " "), ";")
	if of != "" {
		text = regexp.MustCompile(`\b`+of+`\b`).ReplaceAllString(text, "CTE")
	}
	return text
}

func TestRulesAreWrittenOnce(t *testing.T) {
	holds(t, decidedElsewhere)
	holds(t, wordsElsewhere)
	holds(t, unlikeBlocks)
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
	finds(t, unlikeBlocks, map[string]string{
		"db/queries/a.sql": "-- name: A :exec\n-- block: over of a\n  SELECT a.x FROM a;\n-- end\n-- block: once\n-- end\n-- name: MendReady :exec\nINSERT INTO durable.ready\n",
		"db/queries/b.sql": "-- block: over of boy\nSELECT\n   boy.x FROM boy\n-- end\n-- block: over of c\nSELECT c.y FROM c\n-- end\nINSERT INTO durable.ready\n-- block: open\n",
	}, "db/queries/a.sql:5: the block once stands", "db/queries/b.sql:5: the block over differs",
		"db/queries/b.sql:8: a run enters", "db/queries/b.sql:9: the block open does not")
	finds(t, strandedPending, map[string]string{
		"db/queries/a.sql": "-- name: A :exec\nUPDATE durable.runs\nSET state = 0,\n    due_at = now()\n-- block: enter-line of a\n-- end\n-- name: EnqueueNew :exec\nINSERT INTO durable.runs\n",
	}, "db/queries/a.sql: A makes runs pending that do not enter waiting", "db/queries/a.sql: EnqueueNew makes runs pending that do not enter ready")
}
