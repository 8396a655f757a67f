package archtest_test

import (
	"fmt"
	"go/ast"
	"io/fs"
	"path"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// prose are the documents whose claims are checked against the code.
func prose(t tree) map[string]string {
	texts := map[string]string{}
	for _, name := range t.other {
		if path.Ext(name) != ".md" {
			continue
		}
		if text, err := fs.ReadFile(t.root, name); err == nil {
			texts[name] = string(text)
		}
	}
	return texts
}

// lineOf is the line on which an offset lies.
func lineOf(text string, offset int) int { return 1 + strings.Count(text[:offset], "\n") }

var (
	link = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	code = regexp.MustCompile("(?s)```.*?```|`[^`]*`")
)

// brokenLinks finds links to files and headings that are not there.
func brokenLinks(t tree) []string {
	var findings []string
	texts := prose(t)
	for name, text := range texts {
		text = code.ReplaceAllStringFunc(text, func(s string) string { // f[A]("a") is no link
			return regexp.MustCompile(`[^\n]`).ReplaceAllString(s, " ")
		})
		for _, m := range link.FindAllStringSubmatchIndex(text, -1) {
			target := text[m[2]:m[3]]
			if strings.Contains(target, "://") || strings.HasPrefix(target, "mailto:") {
				continue
			}
			file, anchor, _ := strings.Cut(target, "#")
			file = path.Join(path.Dir(name), file)
			if strings.HasPrefix(target, "#") {
				file = name
			}
			switch {
			case !exists(t.root, file):
				findings = append(findings, fmt.Sprintf("%s:%d: the link %s leads nowhere", name, lineOf(text, m[0]), target))
			case anchor != "" && !slices.Contains(anchors(texts[file]), anchor):
				findings = append(findings, fmt.Sprintf("%s:%d: the heading of the link %s is not there", name, lineOf(text, m[0]), target))
			}
		}
	}
	return findings
}

var (
	heading     = regexp.MustCompile(`(?m)^#+ (.+)$`)
	punctuation = regexp.MustCompile(`[^\p{L}\p{N} _-]`)
)

// anchors are the names under which a document's headings can be linked to.
func anchors(text string) []string {
	var names []string
	for _, m := range heading.FindAllStringSubmatch(text, -1) {
		name := punctuation.ReplaceAllString(strings.ToLower(m[1]), "")
		names = append(names, strings.ReplaceAll(name, " ", "-"))
	}
	return names
}

// missingTests finds tests and transcripts that documents name and that do not
// exist: a claim with a proof that is not there.
func missingTests(t tree) []string {
	have := map[string]bool{}
	for _, f := range t.files {
		for _, decl := range f.syntax.Decls {
			if fn, ok := decl.(*ast.FuncDecl); ok && fn.Recv == nil {
				have[fn.Name.Name] = true
			}
		}
	}
	named := regexp.MustCompile(`\bTest[A-Z]\w*`)
	var findings []string
	for name, text := range prose(t) {
		for _, m := range named.FindAllStringIndex(text, -1) {
			if test := text[m[0]:m[1]]; !have[test] {
				findings = append(findings, fmt.Sprintf("%s:%d: there is no %s", name, lineOf(text, m[0]), test))
			}
		}
	}
	return findings
}

// missingSentences finds subtests of the contract suite that documents name as
// `group/sentence` and that no string of the suite says.
func missingSentences(t tree) []string {
	var suite strings.Builder
	packages := map[string]bool{}
	for _, f := range t.files {
		packages[f.dir] = true
		if f.dir == "store/storetest" {
			suite.Write(f.text)
		}
	}
	named := regexp.MustCompile("`(?:enqueue|bounds|limits|claim|settle|keys|races|inspect|operate|queues|schedules|timetable|listen|progress|trace|under|sweep|transaction)/([^`]+)`")
	var findings []string
	for name, text := range prose(t) {
		for _, m := range named.FindAllStringSubmatchIndex(text, -1) {
			sentence := strings.Join(strings.Fields(text[m[2]:m[3]]), " ")
			sentence = strings.TrimSuffix(sentence, " …")
			if !packages[strings.Trim(text[m[0]:m[1]], "`")] && !strings.Contains(suite.String(), `"`+sentence) {
				findings = append(findings, fmt.Sprintf("%s:%d: no test of the suite is called %q", name, lineOf(text, m[0]), sentence))
			}
		}
	}
	return findings
}

const configurationPage = "docs/configuration.md"

// variables checks that the page on configuration names the environment
// variables of the program, all of them and no others.
func variables(t tree) []string {
	read := map[string]bool{}
	for _, f := range t.written() {
		if f.dir != "durablecmd" {
			continue
		}
		ast.Inspect(f.syntax, func(n ast.Node) bool {
			if field, ok := n.(*ast.Field); ok && field.Tag != nil {
				tag := reflect.StructTag(strings.Trim(field.Tag.Value, "`"))
				if name, ok := tag.Lookup("env"); ok {
					read[name] = true
				}
			}
			return true
		})
	}
	text := prose(t)[configurationPage]
	var findings []string
	for _, m := range regexp.MustCompile(`DURABLE_\w*[A-Z]`).FindAllString(text, -1) {
		if !read[m] {
			findings = append(findings, configurationPage+":1: the program does not read "+m)
		}
	}
	for name := range read {
		if !strings.Contains(text, "`"+name+"`") {
			findings = append(findings, configurationPage+":1: "+name+" is missing")
		}
	}
	return findings
}

// shown are the pages whose Go code a newcomer types first.
var shown = []string{"README.md", "docs/guide.md", "docs/flow-control.md"}

// fragments checks that the Go code of these pages stands, but for its indentation,
// in an example or in a test, both of which are executed.
func fragments(t tree) []string {
	flat := regexp.MustCompile(`(?m)^\s+`)
	var executed []string
	for _, f := range t.files {
		if f.test || strings.HasPrefix(f.dir, "examples/") {
			executed = append(executed, flat.ReplaceAllString(string(f.text), ""))
		}
	}
	var findings []string
	for _, name := range shown {
		text := prose(t)[name]
		for _, m := range goBlock.FindAllStringSubmatchIndex(text, -1) {
			block := flat.ReplaceAllString(text[m[2]:m[3]], "")
			if !slices.ContainsFunc(executed, func(s string) bool { return strings.Contains(s, block) }) {
				findings = append(findings, fmt.Sprintf("%s:%d: this code stands in no example and in no test", name, lineOf(text, m[0])))
			}
		}
	}
	return findings
}

func TestLinksLeadSomewhere(t *testing.T) {
	holds(t, brokenLinks)
	finds(t, brokenLinks, map[string]string{
		"README.md":  "# A\n[a](docs/a.md) [b](docs/b.md) [c](docs/a.md#the-life-of-a-run) [d](docs/a.md#no) [e](#a) [f](https://example.com/x) `f[A](x)`\n```\nf[A](y)\n```\n",
		"docs/a.md":  "# The life of a run\n[up](../README.md)\n",
		"docs/c.txt": "[a](nowhere.md)",
	}, "README.md:2: the link docs/b.md", "README.md:2: the heading of the link docs/a.md#no")
}

func TestNamedTestsExist(t *testing.T) {
	holds(t, missingTests)
	holds(t, missingSentences)
	finds(t, missingTests, map[string]string{
		"docs/a.md": "`TestThere` and\n`TestGone`\n",
		"a_test.go": "package a\nfunc TestThere() {}\n",
	}, "docs/a.md:2: there is no TestGone")
	finds(t, missingSentences, map[string]string{
		"docs/a.md":                 "`settle/zombie cannot\nsettle` and `settle/zombie …` and `races/gone`\n",
		"store/storetest/settle.go": "package storetest\nvar s = \"zombie cannot settle\"\n",
	}, "docs/a.md:2: no test of the suite is called \"gone\"")
}

func TestConfigurationPageIsComplete(t *testing.T) {
	holds(t, variables)
	finds(t, variables, map[string]string{
		"docs/configuration.md": "`DURABLE_A` `DURABLE_OLD` and `DURABLE_` alone\n",
		"durablecmd/config.go":  "package durablecmd\ntype config struct {\n\tA int `env:\"DURABLE_A\"`\n\tB int `env:\"DURABLE_B\"`\n}\n",
	}, "docs/configuration.md:1: DURABLE_B is missing", "docs/configuration.md:1: the program does not read DURABLE_OLD")
}

func TestWhatIsShownIsExecuted(t *testing.T) {
	holds(t, fragments)
	finds(t, fragments, map[string]string{
		"README.md":          "```go\n// Command a does a.\npackage main\n```\n```go\nb()\n\nif c {\n\td()\n}\n```\n```sh\nls\n```\n",
		"docs/guide.md":      "```go\ngone()\n```\n",
		"examples/a/main.go": "// Command a does a.\npackage main\n",
		"b/b_test.go":        "package b\nfunc f() {\n\tb()\n\tif c {\n\t\td()\n\t}\n}\n",
		"c/c.go":             "package c\nfunc f() {\n\tgone()\n}\n",
	}, "docs/guide.md:1: this code")
}
