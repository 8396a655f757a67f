package archtest_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
)

// A statement is read as a whole. What is longer than that becomes several, or gets words
// (db/words.sql) for its parts.
const (
	statementLines = 80
	statementCTEs  = 8
)

// extent is how large a statement is: its lines without comments, and its CTEs.
type extent struct{ lines, ctes int }

// longStatements are larger, with their present extents. No new one comes in, and none grows: a
// figure is taken down with the statement.
var longStatements = map[string]extent{
	"db/queries/catalog.sql: ReplaceSchedules":        {95, 4},
	"db/queries/enqueue.sql: EnqueueLimited":          {125, 5},
	"db/queries/hand_on.sql: HandOn":                  {237, 14},
	"db/queries/inspect.sql: CountMatching":           {98, 3},
	"db/queries/keys.sql: ReplaceRun":                 {115, 8},
	"db/queries/limits_check.sql: CheckLimits":        {281, 11},
	"db/queries/monitor.sql: SurveyLanes":             {122, 6},
	"db/queries/reclaim.sql: ReclaimRuns":             {276, 22},
	"db/queries/settle.sql: SettleLimited":            {107, 8},
	"db/queries/sweep.sql: ReturnRuns":                {129, 13},
	"db/sqlite/queries/inspect.sql: ListProblems":     {85, 0},
	"db/sqlite/queries/inspect.sql: ListRuns":         {88, 0},
	"db/sqlite/queries/progress.sql: ListChosen":      {89, 0},
	"db/sqlite/statements/inspect.sql: CountMatching": {103, 2},
	"db/sqlite/statements/limits.sql: CheckLimits":    {149, 9},
}

// statementsOf are the extents of the statements of a file by their names.
func statementsOf(text string) map[string]extent {
	all := map[string]extent{}
	for _, statement := range strings.Split(text, "-- name: ")[1:] {
		head, body, _ := strings.Cut(statement, "\n")
		code := strings.TrimSpace(sqlComment.ReplaceAllString(body, ""))
		size := extent{ctes: len(cteName.FindAllString(code, -1))}
		for line := range strings.Lines(code) {
			if strings.TrimSpace(line) != "" {
				size.lines++
			}
		}
		all[strings.Fields(head)[0]] = size
	}
	return all
}

// longOnes finds statements that are too large, those in a list that have become smaller, and
// entries without a statement.
func longOnes(listed map[string]extent) rule {
	return func(t tree) []string {
		var findings []string
		left := maps.Clone(listed)
		inQueries(t, func(file, text string) {
			for name, size := range statementsOf(text) {
				known, is := left[file+": "+name]
				delete(left, file+": "+name)
				switch {
				case !is && (size.lines > statementLines || size.ctes > statementCTEs):
					findings = append(findings, fmt.Sprintf("%s: %s has %d lines and %d CTEs, more than %d and %d", file, name, size.lines, size.ctes, statementLines, statementCTEs))
				case is && (size.lines > known.lines || size.ctes > known.ctes):
					findings = append(findings, fmt.Sprintf("%s: %s has %d lines and %d CTEs, and had %d and %d", file, name, size.lines, size.ctes, known.lines, known.ctes))
				case is && size != known:
					findings = append(findings, fmt.Sprintf("%s: %s is smaller now: write {%d, %d}, or nothing, into longStatements", file, name, size.lines, size.ctes))
				}
			}
		})
		for _, gone := range slices.Sorted(maps.Keys(left)) {
			findings = append(findings, gone+" is in longStatements, and no statement")
		}
		return findings
	}
}

func TestAStatementCanBeReadAsAWhole(t *testing.T) {
	holds(t, longOnes(longStatements))
	long := strings.Repeat("    x,\n", statementLines-1)
	ctes := "WITH " + strings.Repeat("one AS (\n    SELECT 1\n), ", statementCTEs) + "last AS (\n    SELECT 1\n)\n"
	finds(t, longOnes(map[string]extent{"db/queries/a.sql: Grown": {81, 0}, "db/queries/a.sql: Shrunk": {90, 1}, "db/queries/a.sql: Gone": {90, 1}}), map[string]string{
		"db/queries/a.sql": "-- name: Fits :exec\n-- One.\nSELECT\n" + long + "-- a comment\n\n-- name: Long :exec\nSELECT\n    y,\n" + long +
			"-- name: Grown :exec\nSELECT\n    y,\n    y,\n" + long + "-- name: Shrunk :exec\nSELECT 1;\n-- name: Many :exec\n" + ctes + "SELECT 1;\n",
	}, "db/queries/a.sql: Long has 81 lines and 0 CTEs", "db/queries/a.sql: Grown has 82 lines", "db/queries/a.sql: Shrunk is smaller",
		"db/queries/a.sql: Many has 20 lines and 9 CTEs", "db/queries/a.sql: Gone is in longStatements")
}
