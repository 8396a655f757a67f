package archtest_test

import (
	"fmt"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// drawing is the part of CONTRIBUTING.md that shows the packages, one floor a line.
var drawing = regexp.MustCompile("(?s)## Where things are\n.*?```\n(.*?)```")

// floors tells the line of each package of a drawing. What follows two spaces and is
// no name of a package, or a pattern of some, says what the floor is for.
func floors(text string) map[string]int {
	floors := map[string]int{}
	for i, line := range strings.Split(strings.TrimSpace(text), "\n") {
		for word := range strings.SplitSeq(line, "  ") {
			if _, known := law[strings.TrimSpace(word)]; known {
				floors[strings.TrimSpace(word)] = i
			}
		}
	}
	return floors
}

// undrawn are the packages that the drawing leaves out: tests and their tools.
func undrawn(dir string) bool {
	inside := strings.HasSuffix(dir, "/internal/*") || path.Base(dir) == "*"
	return inside && dir != "examples/*" || dir == "deploy" ||
		slices.Contains(forTests, dir) && dir != "store/storetest" && dir != "lock/locktest" && dir != "durable/durabletest"
}

// againstDrawing finds packages that a drawing does not show, or shows above what
// imports them.
func againstDrawing(text string) (findings []string) {
	floor := floors(text)
	for dir, imports := range law {
		mine, drawn := floor[dir]
		switch {
		case undrawn(dir):
			continue
		case !drawn:
			findings = append(findings, dir+" is not in the drawing")
			continue
		}
		for _, other := range imports {
			if below, drawn := floor[other]; drawn && below <= mine {
				findings = append(findings, fmt.Sprintf("%s imports %s, which the drawing does not show below it", dir, other))
			}
		}
	}
	slices.Sort(findings)
	return findings
}

func TestTheDrawingShowsThePackages(t *testing.T) {
	page, err := os.ReadFile("../../CONTRIBUTING.md")
	require.NoError(t, err)
	found := drawing.FindSubmatch(page)
	require.NotNil(t, found, "CONTRIBUTING.md has no drawing")
	require.Empty(t, againstDrawing(string(found[1])))

	upside := strings.Replace(string(found[1]), "\nstore  ", "\nlast  ", 1) + "\nstore"
	require.Contains(t, againstDrawing(upside), "store imports lease, which the drawing does not show below it")
	require.Contains(t, againstDrawing("durable\n"), "store is not in the drawing")
}
