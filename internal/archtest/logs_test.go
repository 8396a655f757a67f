package archtest_test

import (
	"fmt"
	"go/ast"
	"go/token"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// logsPage lists the events of all log lines.
const logsPage = "docs/logs.md"

// logLevels are the methods of loggers, with the level of their lines. Log takes it as
// an argument, and warn is the helper of package durable.
var logLevels = map[string]string{
	"Debug": "debug", "Info": "info", "Warn": "warn", "Error": "error", "Log": "info", "warn": "warn",
	"DebugContext": "debug", "InfoContext": "info", "WarnContext": "warn", "ErrorContext": "error",
}

// eventName is the form of an event: what it is about, and what has happened.
var eventName = regexp.MustCompile(`^[a-z]+(\.[a-z_]+)+$`)

// loggers are how the code calls its loggers, and notLoggers what has methods of the
// same names: findings of doctor, tests, net/http, Redis.
var (
	loggers    = []string{"Logger", "logger", "log", "Log", "slog"}
	notLoggers = []string{"f", "t", "tb", "http", "node"}
)

// logLine is one line that the code may log.
type logLine struct{ event, level, message string }

// logLines finds the lines that the code logs, and what is wrong with them.
func logLinesOf(t tree) (lines map[logLine]string, findings []string) {
	lines = map[logLine]string{}
	for _, f := range t.production() {
		if anyMatches(forTests, f.dir) || strings.HasPrefix(f.dir, "examples/") || strings.HasPrefix(f.dir, "bench") || f.dir == "internal/release" || strings.Contains(f.dir, "browsertest") {
			continue
		}
		ast.Inspect(f.syntax, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			line, logs, why := readLogCall(call)
			switch {
			case why != "":
				findings = append(findings, f.finding(call, "%s", why))
			case logs && line.event != "": // else the event is a parameter of the helper
				lines[line] = f.finding(call, "%s", line.event)
			}
			return true
		})
	}
	return lines, findings
}

// readLogCall reads a call, if it logs a line.
func readLogCall(call *ast.CallExpr) (line logLine, logs bool, why string) {
	method, ok := call.Fun.(*ast.SelectorExpr)
	if !ok || logLevels[method.Sel.Name] == "" {
		return line, false, ""
	}
	line.level = logLevels[method.Sel.Name]
	if method.Sel.Name == "warn" {
		if len(call.Args) != 4 {
			return line, false, ""
		}
		line.event, line.message = textOf(call.Args[1]), textOf(call.Args[2])
		return line, true, wrongEvent(line.event)
	}
	at := 0
	for at < len(call.Args) && textOf(call.Args[at]) == "" {
		at++
	}
	receiver := lastName(method.X)
	switch {
	case slices.Contains(notLoggers, receiver), !slices.Contains(loggers, receiver) && at > 2:
		return line, false, ""
	case !slices.Contains(loggers, receiver) && at == len(call.Args):
		return line, false, ""
	case !slices.Contains(loggers, receiver):
		return line, false, fmt.Sprintf("%s.%s looks like a log line: call the logger one of %v", receiver, method.Sel.Name, loggers)
	case len(call.Args) == 0:
		return line, false, ""
	}
	if textOf(call.Args[at]) == "event" { // the message is computed
		at--
	}
	line.message = textOf(call.Args[max(at, 0)])
	if at+2 >= len(call.Args) || textOf(call.Args[at+1]) != "event" {
		return line, true, fmt.Sprintf("the line %q has no event as its first attribute", line.message)
	}
	if name, ok := call.Args[at+2].(*ast.Ident); ok && name.Name == "event" { // of the helper's caller
		return line, true, ""
	}
	line.event = textOf(call.Args[at+2])
	return line, true, wrongEvent(line.event)
}

func wrongEvent(name string) string {
	if eventName.MatchString(name) {
		return ""
	}
	return fmt.Sprintf("the event %q is not of the form thing.what_happened", name)
}

// lastName is the name by which an expression is called last: of x.w.config.Logger it
// is Logger, and of run.Log() it is Log.
func lastName(expr ast.Expr) string {
	switch e := expr.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.SelectorExpr:
		return e.Sel.Name
	case *ast.CallExpr:
		return lastName(e.Fun)
	default:
		return ""
	}
}

// textOf is a literal, or the literal with which a sum begins.
func textOf(expr ast.Expr) string {
	switch e := expr.(type) {
	case *ast.BasicLit:
		if e.Kind == token.STRING {
			text, _ := strconv.Unquote(e.Value)
			return text
		}
	case *ast.BinaryExpr:
		return textOf(e.X)
	}
	return ""
}

// logEvents compares the lines with each other, and with the page.
func logEvents(t tree) []string {
	lines, findings := logLinesOf(t)
	said := map[string]logLine{}
	named := map[string]string{}
	for line := range lines {
		if other, twice := said[line.event]; twice && other.message != line.message {
			findings = append(findings, fmt.Sprintf("%s is %q and %q: one event for one fact", line.event, min(line.message, other.message), max(line.message, other.message)))
		}
		if other := named[line.message]; other != "" && other != line.event && line.message != "" {
			findings = append(findings, fmt.Sprintf("%q is %s and %s", line.message, min(line.event, other), max(line.event, other)))
		}
		said[line.event], named[line.message] = line, line.event
	}
	listed := map[string]bool{}
	row := regexp.MustCompile("(?m)^\\| `([a-z._]+)` \\| (\\w+) \\| (.*) \\|$")
	for _, m := range row.FindAllStringSubmatch(prose(t)[logsPage], -1) {
		line, there := said[m[1]]
		switch {
		case listed[m[1]]:
			findings = append(findings, fmt.Sprintf("%s:1: %s is there twice", logsPage, m[1]))
		case !there:
			findings = append(findings, fmt.Sprintf("%s:1: nothing logs %s", logsPage, m[1]))
		case m[2] != line.level || line.message != "" && m[3] != strings.TrimSpace(line.message):
			findings = append(findings, fmt.Sprintf("%s:1: %s is %s, %q", logsPage, m[1], line.level, line.message))
		}
		listed[m[1]] = true
	}
	for _, event := range slices.Sorted(maps.Keys(said)) {
		if !listed[event] {
			findings = append(findings, fmt.Sprintf("%s:1: no row for | `%s` | %s | %s |", logsPage, event, said[event].level, strings.TrimSpace(said[event].message)))
		}
	}
	return findings
}

func TestEveryLogLineHasAnEvent(t *testing.T) {
	holds(t, logEvents)
	finds(t, logEvents, map[string]string{
		"durable/a.go": "package durable\nfunc a() {\nlogger.Info(\"one\")\nlogger.Warn(\"two\", \"event\", \"Two\")\nx.Error(\"three\", \"event\", \"a.b\")\n" +
			"logger.Info(\"four\", \"event\", \"run.four\")\nw.config.Logger.Info(\"five\", \"event\", \"run.four\")\nw.warn(ctx, \"six\", \"six\", err)\nf.Warn(\"a\", \"b\", \"c\")\n}\n",
		"docs/logs.md": "# Logs\n\n| event | level | message |\n|---|---|---|\n| `run.seven` | info | seven |\n",
	}, "durable/a.go:3: the line \"one\" has no event", "durable/a.go:4: the event \"Two\"", "durable/a.go:5: x.Error looks like", "durable/a.go:8: the event \"six\"",
		"run.four is \"five\" and \"four\"", "docs/logs.md:1: nothing logs run.seven", "docs/logs.md:1: no row for | `run.four`")
}
