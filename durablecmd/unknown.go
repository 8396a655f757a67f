package durablecmd

import (
	"fmt"
	"slices"
	"strings"
)

// unknown warns of variables that look like ours and mean nothing, without
// their values.
func unknown(environ []string) []string {
	known := make([]string, 0, len(variables()))
	for _, v := range variables() {
		known = append(known, v.name)
	}
	var warnings []string
	for _, pair := range environ {
		name, _, _ := strings.Cut(pair, "=")
		if !strings.HasPrefix(name, "DURABLE_") || slices.Contains(known, name) {
			continue
		}
		warning := fmt.Sprintf("%s is not a variable of this program and has no effect", name)
		if near := nearest(name, known); near != "" {
			warning += fmt.Sprintf("; did you mean %s?", near)
		}
		warnings = append(warnings, warning)
	}
	slices.Sort(warnings)
	return warnings
}

// nearest returns the word that takes the fewest edits to reach, if they are
// few for its length.
func nearest(word string, words []string) string {
	best, fewest := "", max(len(word)/6, 2)+1
	for _, w := range words {
		if d := edits(word, w); d < fewest {
			best, fewest = w, d
		}
	}
	return best
}

// edits is the Levenshtein distance in bytes.
func edits(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
