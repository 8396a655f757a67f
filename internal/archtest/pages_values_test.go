package archtest_test

import (
	"fmt"
	"go/ast"
	"go/token"
	"io/fs"
	"math"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// defaults are the variables of the program with their defaults, where the
// default does not depend on another variable.
func defaults(t tree) map[string]string {
	found := map[string]string{}
	for _, f := range t.written() {
		ast.Inspect(f.syntax, func(n ast.Node) bool {
			field, ok := n.(*ast.Field)
			if !ok || field.Tag == nil {
				return true
			}
			tag := reflect.StructTag(strings.Trim(field.Tag.Value, "`"))
			if name := tag.Get("env"); name != "" {
				found[name] = tag.Get("envDefault")
			}
			return true
		})
	}
	return found
}

var rowOfVariable = regexp.MustCompile("^\\| `(DURABLE_\\w+)` \\| (?:`([^`]*)`|([^`|,]+))")

// wrongDefaults finds rows of tables that give a variable another default than
// the program.
func wrongDefaults(t tree) []string {
	var findings []string
	known := defaults(t)
	for name, text := range prose(t) {
		for i, line := range strings.Split(text, "\n") {
			m := rowOfVariable.FindStringSubmatch(line)
			if m == nil {
				continue
			}
			if is, said := known[m[1]], m[2]+strings.TrimSpace(m[3]); is != "" && said != is {
				findings = append(findings, fmt.Sprintf("%s:%d: the default of %s is %s and not %s", name, i+1, m[1], is, said))
			}
		}
	}
	return findings
}

// unreadVariables finds DURABLE_ variables in pages that no Go file has.
func unreadVariables(t tree) []string {
	variable := regexp.MustCompile(`\bDURABLE_\w*[A-Z]\b`)
	have := map[string]bool{}
	for _, f := range t.files {
		for _, name := range variable.FindAllString(string(f.text), -1) {
			have[name] = true
		}
	}
	var findings []string
	for name, text := range prose(t) {
		for _, m := range variable.FindAllStringIndex(text, -1) {
			if v := text[m[0]:m[1]]; !have[v] {
				findings = append(findings, fmt.Sprintf("%s:%d: nothing reads %s", name, lineOf(text, m[0]), v))
			}
		}
	}
	return findings
}

const timingPage = "docs/timing.md"

var (
	rowOfConstant = regexp.MustCompile("(?m)^\\| ([0-9]+) (ms|s|min|h|d) \\| `(\\w+)` \\|")
	units         = map[string]time.Duration{"ms": time.Millisecond, "s": time.Second, "min": time.Minute, "h": time.Hour, "d": 24 * time.Hour}
	unitsOfGo     = map[string]time.Duration{"Millisecond": time.Millisecond, "Second": time.Second, "Minute": time.Minute, "Hour": time.Hour}
)

// wrongTimers finds rows of the table of timers whose constant is not there or
// has another value.
func wrongTimers(t tree) []string {
	values := durations(t)
	var findings []string
	text := prose(t)[timingPage]
	for _, m := range rowOfConstant.FindAllStringSubmatchIndex(text, -1) {
		n, _ := strconv.Atoi(text[m[2]:m[3]])
		name, said := text[m[6]:m[7]], time.Duration(n)*units[text[m[4]:m[5]]]
		if is := values[strings.ToLower(name)]; !slices.Contains(is, said) {
			findings = append(findings, fmt.Sprintf("%s:%d: no constant %s is %v; there are %v", timingPage, lineOf(text, m[0]), name, said, is))
		}
	}
	return findings
}

// durations are the constants that are a time, by name in lower case: a constant
// that moves to another package changes its first letter.
func durations(t tree) map[string][]time.Duration {
	exprs := map[string][]ast.Expr{}
	for _, f := range t.written() {
		ast.Inspect(f.syntax, func(n ast.Node) bool {
			if spec, ok := n.(*ast.ValueSpec); ok && len(spec.Names) == len(spec.Values) {
				for i, name := range spec.Names {
					exprs[name.Name] = append(exprs[name.Name], spec.Values[i])
				}
			}
			return true
		})
	}
	values := map[string][]time.Duration{}
	for name, all := range exprs {
		for _, expr := range all {
			if v := valueOf(expr, exprs); !math.IsNaN(v) {
				values[strings.ToLower(name)] = append(values[strings.ToLower(name)], time.Duration(v))
			}
		}
	}
	return values
}

// valueOf computes a constant expression of numbers, units of time and other
// constants; what is none of these is not a number.
func valueOf(expr ast.Expr, names map[string][]ast.Expr) float64 {
	switch e := expr.(type) {
	case *ast.BasicLit:
		if n, err := strconv.ParseFloat(strings.ReplaceAll(e.Value, "_", ""), 64); err == nil {
			return n
		}
	case *ast.Ident:
		if all := names[e.Name]; len(all) == 1 {
			return valueOf(all[0], names)
		}
	case *ast.SelectorExpr:
		if unit, ok := unitsOfGo[e.Sel.Name]; ok {
			return float64(unit)
		}
	case *ast.BinaryExpr:
		x, y := valueOf(e.X, names), valueOf(e.Y, names)
		switch e.Op {
		case token.MUL:
			return x * y
		case token.ADD:
			return x + y
		case token.QUO:
			return x / y
		default:
		}
	default:
	}
	return math.NaN()
}

// wrongTables compares the tables of the schema with those that the page on
// storage lists.
func wrongTables(t tree) []string {
	const page, schema = "docs/storage.md", "db/schema.sql"
	text, err := fs.ReadFile(t.root, schema)
	if err != nil {
		return []string{schema + ":1: " + err.Error()}
	}
	_, listed, _ := strings.Cut(prose(t)[page], "\n| table | rows |\n")
	listed, _, _ = strings.Cut(listed, "\n\n")
	named := regexp.MustCompile("`([a-z_]+)`")
	count := map[string]int{}
	for row := range strings.Lines(listed) {
		first, _, _ := strings.Cut(strings.TrimPrefix(row, "|"), "|")
		for _, m := range named.FindAllStringSubmatch(first, -1) {
			count[m[1]]++
		}
	}
	var findings []string
	for _, m := range regexp.MustCompile(`(?m)^create table durable\.(\w+)`).FindAllStringSubmatch(string(text), -1) {
		if count[m[1]] != 1 {
			findings = append(findings, fmt.Sprintf("%s:1: the table %s is listed %d times", page, m[1], count[m[1]]))
		}
		delete(count, m[1])
	}
	for name := range count {
		findings = append(findings, page+":1: there is no table "+name)
	}
	return findings
}

// missingMessages finds messages in the table of log lines that no Go file has.
func missingMessages(t tree) []string {
	const page = "docs/operations.md"
	var findings []string
	_, table, _ := strings.Cut(prose(t)[page], "\n| level | message |")
	table, _, _ = strings.Cut(table, "\n\n")
	var logged strings.Builder // every string of the programs
	for _, f := range t.production() {
		ast.Inspect(f.syntax, func(n ast.Node) bool {
			if text, ok := n.(*ast.BasicLit); ok && text.Kind == token.STRING {
				logged.WriteString(text.Value)
			}
			return true
		})
	}
	for row := range strings.Lines(table) {
		cells := strings.Split(row, "|")
		if len(cells) < 4 {
			continue
		}
		for _, m := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(cells[2], -1) {
			if message := strings.TrimSuffix(strings.TrimSuffix(m[1], "…"), " "); !strings.Contains(logged.String(), message) {
				findings = append(findings, fmt.Sprintf("%s:1: nothing logs %q", page, message))
			}
		}
	}
	return findings
}

func TestPagesHaveTheDefaults(t *testing.T) {
	holds(t, wrongDefaults)
	holds(t, unreadVariables)
	config := map[string]string{
		"docs/a.md": "| variable | default |\n|---|---|\n| `DURABLE_A` | `5s` | |\n| `DURABLE_B` | 7 |\n| `DURABLE_C` | by need |\n`DURABLE_D`\n",
		"a/a.go":    "package a\ntype config struct {\n\tA int `env:\"DURABLE_A\" envDefault:\"5s\"`\n\tB int `env:\"DURABLE_B\" envDefault:\"8\"`\n\tC int `env:\"DURABLE_C\"`\n}\n",
	}
	finds(t, wrongDefaults, config, "docs/a.md:4: the default of DURABLE_B is 8 and not 7")
	finds(t, unreadVariables, config, "docs/a.md:6: nothing reads DURABLE_D")
}

func TestPagesHaveTheTimers(t *testing.T) {
	holds(t, wrongTimers)
	if rows := len(rowOfConstant.FindAllString(prose(house(t))[timingPage], -1)); rows < 40 {
		t.Errorf("only %d timers were found in %s", rows, timingPage)
	}
	finds(t, wrongTimers, map[string]string{
		timingPage: "| 5 s | `five` | |\n| 75 min | `sum` | |\n| 3 s | `four` | |\n| 1 h | `gone` | |\n",
		"a/a.go":   "package a\nconst (\n\tfive = 5 * time.Second\n\tsum = hour + 15*time.Minute\n\thour = time.Hour\n\tfour = 4 * time.Second\n)\n",
	}, timingPage+":3: no constant four", timingPage+":4: no constant gone")
}

func TestPagesHaveTheTablesAndTheMessages(t *testing.T) {
	holds(t, wrongTables)
	holds(t, missingMessages)
	finds(t, wrongTables, map[string]string{
		"db/schema.sql":   "create table durable.runs (\ncreate table durable.ready (\n",
		"docs/storage.md": "a\n| table | rows |\n|---|---|\n| `runs`, `old` | see `jobs` |\n\n`more`\n",
	}, "docs/storage.md:1: the table ready is listed 0 times", "docs/storage.md:1: there is no table old")
	finds(t, missingMessages, map[string]string{
		"docs/operations.md": "a\n| level | message | do |\n|---|---|---|\n| warn | `lease lost`, `gone` | `x` |\n| warn | `stuck: …` | |\n\nb\n",
		"a/a.go":             "package a\nvar a = \"lease lost\" + \"stuck: it\" // gone\n",
	}, "docs/operations.md:1: nothing logs \"gone\"")
}
