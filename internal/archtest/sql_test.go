package archtest_test

import (
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"
)

// The measures of SQL, which database people read.
const (
	sqlColumns = 100
	legend     = "-- States of a run: 0 pending, 1 running, 2 succeeded, 4 dead, 5 cancelled."
)

var (
	sqlComment  = regexp.MustCompile(`--[^\n]*`)
	cteName     = regexp.MustCompile(`(?i)(?:\bwith\s+(?:recursive\s+)?|\),\s*)(\w+)\s*(?:\([^()]*\)\s*)?as\s+(?:materialized\s*)?\(`)
	tableAlias  = regexp.MustCompile(`(?i)(?:\b(?:from|join|update|using)\s+[\w.]+|\))\s+(?:as\s+)?([a-z])\b`)
	stateNumber = regexp.MustCompile(`(?i)\bstate\s*(?:=|<>|<|>=|in\s*\()\s*\d`)
	repeatedly  = regexp.MustCompile(`--.*\bTwice\b`)
)

// readableSQL finds lines of SQL that are too long, names of CTEs and of tables
// that are not words, and files that use the numbers of states without their
// legend at the head. Statements lie in queries and statements.
func readableSQL(t tree) []string {
	var findings []string
	for _, file := range t.other {
		if path.Ext(file) != ".sql" {
			continue
		}
		content, err := fs.ReadFile(t.root, file)
		if err != nil {
			findings = append(findings, err.Error())
		}
		text := string(content)
		for i, line := range strings.Split(text, "\n") {
			if n := utf8.RuneCountInString(line); n > sqlColumns {
				findings = append(findings, fmt.Sprintf("%s:%d: %d columns, more than %d", file, i+1, n, sqlColumns))
			}
		}
		if folder := path.Base(path.Dir(file)); folder == "queries" || folder == "statements" {
			findings = append(findings, readableStatements(file, text)...)
		}
	}
	return findings
}

func readableStatements(file, text string) []string {
	var findings []string
	find := func(at int, format string, args ...any) {
		findings = append(findings, fmt.Sprintf("%s:%d: %s", file, lineOf(text, at), fmt.Sprintf(format, args...)))
	}
	// Comments become blanks of the same length, so that offsets stay.
	code := sqlComment.ReplaceAllStringFunc(text, func(s string) string { return strings.Repeat(" ", len(s)) })
	for _, m := range cteName.FindAllStringSubmatchIndex(code, -1) {
		if name := code[m[2]:m[3]]; len(name) <= 2 {
			find(m[2], "the CTE %s has no word for a name", name)
		}
	}
	for _, m := range tableAlias.FindAllStringSubmatchIndex(code, -1) {
		find(m[2], "the table is %s here: its own name, or a word", code[m[2]:m[3]])
	}
	if m := stateNumber.FindStringIndex(code); m != nil && !strings.HasPrefix(text, legend+"\n") {
		find(m[0], "a state is a number, and the file does not begin with: %s", legend)
	}
	for _, m := range repeatedly.FindAllStringIndex(text, -1) {
		find(m[0], "better: Idempotent: a repeat …")
	}
	for _, m := range sqlComment.FindAllStringIndex(text, -1) {
		if word := plainWords.FindString(text[m[0]:m[1]]); word != "" {
			find(m[0], "%q: better %s", word, plainer[strings.Join(strings.Fields(strings.ToLower(word)), " ")])
		}
	}
	return findings
}

func TestSQLIsReadable(t *testing.T) {
	holds(t, readableSQL)
	finds(t, readableSQL, map[string]string{
		"db/schema.sql": "create table a (id int); -- " + strings.Repeat("x", 80) + "\n",
		"db/queries/a.sql": "-- name: A :exec\n-- Twice: the same, whoever asks.\nWITH u AS (\n    SELECT id\n    FROM durable.runs r\n" +
			"    WHERE state = 1\n), xy AS MATERIALIZED (\n    SELECT 1\n), word AS (\n    SELECT 1\n)\nSELECT id\nFROM u;\n",
		"db/queries/b.sql": legend + "\n\n-- name: B :exec\nUPDATE durable.runs\nSET state = 1\nWHERE state IN (2, 4);\n",
	}, "db/schema.sql:1: 108 columns", "db/queries/a.sql:2: better: Idempotent", "db/queries/a.sql:2: \"whoever\"", "db/queries/a.sql:3: the CTE u",
		"db/queries/a.sql:5: the table is r", "db/queries/a.sql:6: a state is a number", "db/queries/a.sql:7: the CTE xy")
}
