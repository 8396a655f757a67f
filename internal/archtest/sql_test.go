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
	wordsDir   = "db/queries" // where statements have the words of db/words.sql
)

var (
	sqlComment  = regexp.MustCompile(`--[^\n]*`)
	cteName     = regexp.MustCompile(`(?i)(?:\bwith\s+(?:recursive\s+)?|\),\s*)(\w+)\s*(?:\([^()]*\)\s*)?as\s+(?:materialized\s*)?\(`)
	tableAlias  = regexp.MustCompile(`(?i)(?:\b(?:from|join|update|using)\s+[\w.]+|\))\s+(?:as\s+)?([a-z])\b`)
	stateNumber = regexp.MustCompile(`(?i)\bstate\s*(?:=|<>|<|>=|in\s*\()\s*\d`)
	// A number or a letter that stands for something: compared with a column, set, or the value
	// of a case; in an array of states; and what cuts a number into bits.
	meaning    = `(?:state|kind|action|until|outcome|on_crash|span)`
	bareNumber = regexp.MustCompile(`(?i)\b` + meaning + `\s*(?:=|<>|<=|>=|<|>|in\s*\()\s*(?:\d+\b|'\w')` +
		`|\bcase\s+(?:\w+\.)?` + meaning + `\s+when\s+(?:\d|')` +
		`|\b\d+\s*=\s*any\s*\(\s*@states|\b\d+\s+as\s+` + meaning + `\b`)
	bareBits   = regexp.MustCompile(`(?:<<|[^->]>>|&|[^|]\|)\s*\d+`)
	repeatedly = regexp.MustCompile(`--.*\bTwice\b`)
)

// readableSQL finds lines of SQL that are too long, names of CTEs and of tables
// that are not words, numbers where db/words.sql has a word, and other files that use the
// numbers of states without their legend at the head. Statements lie in queries and statements.
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
	if path.Dir(file) == wordsDir {
		for _, m := range bareNumber.FindAllStringIndex(code, -1) {
			find(m[0], "%q: a word of db/words.sql says what the number stands for", text[m[0]:m[1]])
		}
		for _, m := range bareBits.FindAllStringIndex(code, -1) {
			find(m[0], "%q: a word of db/words.sql says what the bits are", text[m[0]:m[1]])
		}
	} else if m := stateNumber.FindStringIndex(code); m != nil && !strings.HasPrefix(text, legend+"\n") {
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
		"db/sqlite/queries/b.sql": legend + "\n\n-- name: B :exec\nUPDATE runs\nSET state = 1\nWHERE state IN (2, 4);\n",
		"db/sqlite/queries/c.sql": "-- name: C :exec\nUPDATE runs\nSET state = 1;\n",
		"db/queries/d.sql": "-- name: D :exec -- state = 1\nSELECT CASE runs.state WHEN 4 THEN 1 ELSE durable.limit_of(gate) END\nFROM durable.runs\n" +
			"WHERE permits.until = 'f'\n  AND limits.kind <> 1\n  AND on_crash <> 0\n  AND limits.id = (gate >> 43)::int\n  AND line > 1 << 30\n" +
			"  AND 0 = ANY (@states::smallint[])\n  AND state >= @state\n  AND NOT state IN (2, 4)\n  AND lock & 4095 = 1;\n",
	}, "db/schema.sql:1: 108 columns", "db/queries/a.sql:2: better: Idempotent", "db/queries/a.sql:2: \"whoever\"", "db/queries/a.sql:3: the CTE u",
		"db/queries/a.sql:5: the table is r", "db/queries/a.sql:6: \"state = 1\"", "db/queries/a.sql:7: the CTE xy",
		"db/queries/d.sql:2: \"CASE runs.state WHEN 4\"", "db/queries/d.sql:4: \"until = 'f'\"", "db/queries/d.sql:5: \"kind <> 1\"", "db/queries/d.sql:6: \"on_crash <> 0\"",
		"db/queries/d.sql:7: \" >> 43\"", "db/queries/d.sql:8: \"<< 30\"", "db/queries/d.sql:9: \"0 = ANY (@states\"", "db/queries/d.sql:11: \"state IN (2\"", "db/queries/d.sql:12: \"& 4095\"",
		"db/sqlite/queries/c.sql:3: a state is a number")
}
