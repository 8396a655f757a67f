package archtest_test

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
)

// module is the path of the module under test.
const module = "github.com/durable-worker/durable-worker"

// source is one Go file.
type source struct {
	path      string // from the root of the module, with slashes
	dir       string
	lines     int
	test      bool
	generated bool
	syntax    *ast.File
	fset      *token.FileSet
	text      []byte
}

// tree is what the rules read.
type tree struct {
	files []*source
	other []string // paths of files that are not Go
	root  fs.FS
}

// rule returns findings, each "path:line: what is wrong".
type rule func(tree) []string

// load reads a tree, without hidden directories, testdata and other modules.
func load(root fs.FS) (tree, error) {
	loaded := tree{root: root}
	err := fs.WalkDir(root, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if name != "." && (strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata" || d.Name() == "bin" || exists(root, path.Join(name, "go.mod"))) {
				return fs.SkipDir
			}
			return nil
		}
		if path.Ext(name) != ".go" {
			loaded.other = append(loaded.other, name)
			return nil
		}
		text, err := fs.ReadFile(root, name)
		if err != nil {
			return err
		}
		fset := token.NewFileSet()
		syntax, err := parser.ParseFile(fset, name, text, parser.ParseComments)
		if err != nil {
			return err
		}
		loaded.files = append(loaded.files, &source{
			path: name, dir: path.Dir(name), lines: bytes.Count(text, []byte("\n")), test: strings.HasSuffix(name, "_test.go"),
			generated: ast.IsGenerated(syntax), syntax: syntax, fset: fset, text: text,
		})
		return nil
	})
	return loaded, err
}

func exists(root fs.FS, name string) bool {
	_, err := fs.Stat(root, name)
	return err == nil
}

// read is the repository itself, read once.
var read = sync.OnceValues(func() (tree, error) { return load(os.DirFS("../..")) })

// house is the repository itself.
func house(t *testing.T) tree {
	t.Helper()
	loaded, err := read()
	if err != nil {
		t.Fatal(err)
	}
	if len(loaded.files) < 30 {
		t.Fatalf("only %d files were read: is this the root of the module?", len(loaded.files))
	}
	return loaded
}

// written returns the files that people write, tests left out.
func (t tree) written() []*source {
	return slices.DeleteFunc(slices.Clone(t.files), func(f *source) bool { return f.test || f.generated })
}

// production returns the files that people write and programs contain.
func (t tree) production() []*source {
	return slices.DeleteFunc(t.written(), func(f *source) bool { return anyMatches(forTests, f.dir) })
}

func (f *source) finding(at ast.Node, format string, args ...any) string {
	return fmt.Sprintf("%s:%d: %s", f.path, f.fset.Position(at.Pos()).Line, fmt.Sprintf(format, args...))
}

// holds checks a rule against the repository.
func holds(t *testing.T, check rule) {
	t.Helper()
	for _, finding := range check(house(t)) {
		t.Error(finding)
	}
}

// fixture is a tree of a few files.
func fixture(t *testing.T, files map[string]string) tree {
	t.Helper()
	root := fstest.MapFS{}
	for name, text := range files {
		root[name] = &fstest.MapFile{Data: []byte(text)}
	}
	loaded, err := load(root)
	if err != nil {
		t.Fatal(err)
	}
	return loaded
}

// finds checks that a rule reports exactly what is wanted of a fixture, each
// want being the beginning of a finding.
func finds(t *testing.T, check rule, files map[string]string, want ...string) {
	t.Helper()
	got := check(fixture(t, files))
	slices.Sort(got)
	slices.Sort(want)
	if len(got) != len(want) {
		t.Fatalf("got %d findings, want %d:\n%s", len(got), len(want), strings.Join(got, "\n"))
	}
	for i := range got {
		if !strings.HasPrefix(got[i], want[i]) {
			t.Errorf("got %q, want %q", got[i], want[i])
		}
	}
}

// excuses is a table of exceptions: a path of a file, or of a directory with a
// slash at its end, and the reason.
type excuses map[string]string

// excuse finds the entry for a file.
func (e excuses) excuse(f *source) (entry string, ok bool) {
	if _, ok := e[f.path]; ok {
		return f.path, true
	}
	for entry := range e {
		if strings.HasSuffix(entry, "/") && strings.HasPrefix(f.path, entry) {
			return entry, true
		}
	}
	return "", false
}

// judge applies a rule to files one by one, with exceptions.
func judge(files []*source, e excuses, check func(*source) []string) []string {
	var findings []string
	used := map[string]bool{}
	for _, f := range files {
		found := check(f)
		entry, excused := e.excuse(f)
		switch {
		case len(found) == 0:
		case excused:
			used[entry] = true
		default:
			findings = append(findings, found...)
		}
	}
	for entry := range e {
		if !used[entry] {
			findings = append(findings, entry+": this exception excuses nothing any more; take it out of the table")
		}
	}
	return findings
}
