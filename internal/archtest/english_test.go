package archtest_test

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/token"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// plainerInGo are the words that comments and strings of Go code do without:
// those of the pages, except a few that are also names or ordinary verbs in
// code, and some more.
var plainerInGo = func() map[string]string {
	words := maps.Clone(plainer)
	delete(words, "made")
	maps.Copy(words, map[string]string{
		"tells": "reports, returns, notifies", "takes in": "records, adds", "goes on": "continues", "go on": "continue",
		"passed over": "skipped", "by and by": "slowly", "hears": "receives", "taken back": "reclaimed, requeued",
	})
	return words
}()

// leftInGo is how often each package may use such words, as names or with another
// meaning. A number may only fall, and a package that is not listed has none.
var leftInGo = map[string]int{
	"internal/pgtest":                   2, // the user nobody
	"internal/redistest":                1, // Redis' setting save
	"store/memory":                      2, // "save schedule"; likewise below
	"store/postgres/internal/timetable": 1,
	"store/sqlite":                      3,
}

// plainGo finds packages whose comments and strings use more of the words than
// they may. Tests and generated code are left out.
func plainGo(t tree) []string {
	var findings []string
	found := wordsInGo(t)
	for _, dir := range slices.Sorted(maps.Keys(found)) {
		if len(found[dir]) <= leftInGo[dir] {
			continue
		}
		findings = append(findings, fmt.Sprintf("%s: %d words have a plainer one, more than %d:\n\t%s",
			dir, len(found[dir]), leftInGo[dir], strings.Join(found[dir], "\n\t")))
	}
	return findings
}

// wordsInGo lists the words of each package that have a plainer one.
func wordsInGo(t tree) map[string][]string {
	found := map[string][]string{}
	for _, f := range t.written() {
		for _, text := range texts(f.syntax) {
			for _, m := range goWords.FindAllStringIndex(text.text, -1) {
				word := strings.Join(strings.Fields(strings.ToLower(strings.ReplaceAll(text.text[m[0]:m[1]], "//", ""))), " ")
				line := f.fset.Position(text.at).Line + strings.Count(text.text[:m[0]], "\n")
				found[f.dir] = append(found[f.dir], fmt.Sprintf("%s:%d: %q: better %s", f.path, line, word, plainerInGo[word]))
			}
		}
	}
	return found
}

// goWords matches a word also where a comment breaks its line.
var goWords = func() *regexp.Regexp {
	longest := slices.SortedFunc(maps.Keys(plainerInGo), func(a, b string) int { return cmp.Compare(len(b), len(a)) })
	return regexp.MustCompile(`(?i)\b(?:` + strings.ReplaceAll(strings.Join(longest, "|"), " ", `(?:\s|//)+`) + `)\b`)
}()

// written is a text in a file, and where it begins.
type written struct {
	text string
	at   token.Pos
}

// texts returns the comments and the strings of a file; paths of imports and
// tags of fields are left out.
func texts(file *ast.File) []written {
	var all []written
	for _, group := range file.Comments {
		lines := make([]string, 0, len(group.List))
		for _, comment := range group.List {
			lines = append(lines, comment.Text)
		}
		all = append(all, written{strings.Join(lines, "\n"), group.Pos()})
	}
	tags := map[*ast.BasicLit]bool{}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.ImportSpec:
			return false
		case *ast.Field:
			tags[n.Tag] = true
		case *ast.BasicLit:
			if n.Kind == token.STRING && !tags[n] {
				all = append(all, written{n.Value, n.Pos()})
			}
		}
		return true
	})
	return all
}

// plainTests finds words in the comments and strings of tests that have a plainer one:
// those that are neither values of tests nor names of users.
func plainTests(t tree) []string {
	words := regexp.MustCompile(`(?i)\b(?:somebody|whoever|told|anew|stands|heard(?:\s|//)+of|at(?:\s|//)+once|for(?:\s|//)+ever|own(?:\s|//)+clock)\b`)
	var findings []string
	for _, f := range t.files {
		if !f.test || f.generated || f.dir == "internal/archtest" {
			continue
		}
		for _, text := range texts(f.syntax) {
			for _, m := range words.FindAllStringIndex(text.text, -1) {
				word := strings.Join(strings.Fields(strings.ToLower(strings.ReplaceAll(text.text[m[0]:m[1]], "//", ""))), " ")
				line := f.fset.Position(text.at).Line + strings.Count(text.text[:m[0]], "\n")
				findings = append(findings, fmt.Sprintf("%s:%d: %q: better %s", f.path, line, word, plainerInGo[word]))
			}
		}
	}
	return findings
}

func TestTestsAreInPlainEnglish(t *testing.T) {
	holds(t, plainTests)
	finds(t, plainTests, map[string]string{
		"a/a_test.go": "package a\n\n// Whoever stops at\n// once.\nconst a = \"nobody is told\"\n",
		"a/a.go":      "package a // told\n",
	}, "a/a_test.go:3: \"at once\"", "a/a_test.go:3: \"whoever\"", "a/a_test.go:5: \"told\"")
}

func TestGoIsInPlainEnglish(t *testing.T) {
	holds(t, plainGo)
	found := wordsInGo(house(t))
	for _, dir := range slices.Sorted(maps.Keys(leftInGo)) {
		if left := len(found[dir]); left < leftInGo[dir] {
			t.Logf("%s: %d words are left, the limit %d can fall", dir, left, leftInGo[dir])
		}
	}
	finds(t, plainGo, map[string]string{
		"a/a.go":      "// Package a tells\n// nothing.\npackage a\n\nimport \"told\"\n\nvar told = told.X // whatever nobodys say\n",
		"b/b.go":      "package b\n\n// A stops at\n// once.\nconst A = \"for ever\"\n\ntype S struct{ F int `told:\"law\"` }\n",
		"b/b_test.go": "package b // nobody\n",
	}, "a: 1 words have a plainer one, more than 0:\n\ta/a.go:1: \"tells\"", "b: 2 words have a plainer one, more than 0:\n\tb/b.go:3: \"at once\"")
}
