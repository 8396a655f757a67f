package archtest_test

import (
	"fmt"
	"go/ast"
	"go/token"
	"io/fs"
	"path"
	"regexp"
	"strings"
	"testing"
	"unicode"
)

// banned words have a better one in the vocabulary, or say nothing. They are
// looked for as whole words of names: package, file, and whatever is declared.
var banned = map[string]string{
	"task": "a run, or a job", "tasks": "runs, or jobs", "workitem": "a run",
	"ack": "settle", "nack": "settle", "reaper": "reclaim", "janitor": "name what it does",
	"manager": "name what it does", "util": "name what it does", "utils": "name what it does", "helper": "name what it does",
	"helpers": "name what it does", "common": "name what it holds", "misc": "name what it holds",
	"types": "one concept, one file", "models": "one concept, one file",
	"somebody": "name who it is", "whoever": "name who it is", "nobody": "none, no worker", "told": "notified, logged, reported",
	"anew": "again", "stands": "is, stays, counts",
}

// vocabulary finds banned words in names.
func vocabulary(t tree) []string {
	var findings []string
	seen := map[string]bool{}
	for _, f := range t.files {
		for _, part := range strings.Split(strings.TrimSuffix(f.path, ".go"), "/") {
			if word, better := bannedIn(part); word != "" && !f.generated && !seen[f.path] {
				seen[f.path] = true
				findings = append(findings, fmt.Sprintf("%s:1: the name has %q in it: %s", f.path, word, better))
			}
		}
		if f.generated {
			continue
		}
		for _, name := range declared(f.syntax) {
			if word, better := bannedIn(name.Name); word != "" {
				findings = append(findings, f.finding(name, "the name %s has %q in it: %s", name.Name, word, better))
			}
		}
	}
	return append(findings, sqlWords(t)...)
}

// bannedIn returns the first banned word of a name.
func bannedIn(name string) (word, better string) {
	for _, word := range split(name) {
		if better, bad := banned[word]; bad {
			return word, better
		}
	}
	return "", ""
}

// split takes a name apart: camelCase, snake_case, kebab-case.
func split(name string) []string {
	var parts []string
	var part []rune
	flush := func() {
		if len(part) > 0 {
			parts, part = append(parts, strings.ToLower(string(part))), nil
		}
	}
	runes := []rune(name)
	for i, r := range runes {
		switch {
		case !unicode.IsLetter(r):
			flush()
			continue
		case unicode.IsUpper(r) && i > 0 && (unicode.IsLower(runes[i-1]) || i+1 < len(runes) && unicode.IsLower(runes[i+1])):
			flush()
		}
		part = append(part, r)
	}
	flush()
	return parts
}

// declared returns the names a file declares, locals and fields included.
func declared(file *ast.File) []*ast.Ident {
	var names []*ast.Ident
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			names = append(names, n.Name)
		case *ast.TypeSpec:
			names = append(names, n.Name)
		case *ast.ValueSpec:
			names = append(names, n.Names...)
		case *ast.Field:
			names = append(names, n.Names...)
		case *ast.AssignStmt:
			for _, left := range n.Lhs {
				if name, ok := left.(*ast.Ident); ok && n.Tok == token.DEFINE {
					names = append(names, name)
				}
			}
		}
		return true
	})
	return names
}

// sqlWords finds banned words in SQL, comments and literals left out.
func sqlWords(t tree) []string {
	notNames := regexp.MustCompile(`(?s)--[^\n]*|/\*.*?\*/|'[^']*'`)
	name := regexp.MustCompile(`[A-Za-z_]+`)
	var findings []string
	for _, file := range t.other {
		if path.Ext(file) != ".sql" {
			continue
		}
		text, err := fs.ReadFile(t.root, file)
		if err != nil {
			findings = append(findings, err.Error())
		}
		blank := notNames.ReplaceAllStringFunc(string(text), func(s string) string {
			return strings.Repeat("\n", strings.Count(s, "\n"))
		})
		for i, line := range strings.Split(blank, "\n") {
			for _, found := range name.FindAllString(line, -1) {
				if word, better := bannedIn(found); word != "" {
					findings = append(findings, fmt.Sprintf("%s:%d: the name %s has %q in it: %s", file, i+1, found, word, better))
				}
			}
		}
	}
	return findings
}

func TestVocabulary(t *testing.T) {
	holds(t, vocabulary)
	finds(t, vocabulary, map[string]string{
		"a.go":         "package a\ntype TaskRunner struct{ nackCount int }\nfunc f(x int) { lockManager := x; _ = lockManager }\n",
		"b.go":         "package a\nvar back, pack, utility, uncommon int // a task, in prose\n",
		"util/x.go":    "package util\n",
		"run_types.go": "package a\n",
		"schema.sql":   "-- a task\ncreate table tasks (id int);\n",
	}, "a.go:2: the name TaskRunner", "a.go:2: the name nackCount", "a.go:3: the name lockManager",
		"util/x.go:1: the name has", "run_types.go:1: the name has", "schema.sql:2: the name tasks")
}

func TestNamesAreTakenApart(t *testing.T) {
	for name, want := range map[string]string{
		"TaskRunner": "task runner", "nack_count": "nack count", "HTTPAddr": "http addr", "back": "back", "run2ack": "run ack", "durable-worker": "durable worker",
	} {
		if got := strings.Join(split(name), " "); got != want {
			t.Errorf("%s: got %q, want %q", name, got, want)
		}
	}
}
