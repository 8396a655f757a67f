package archtest_test

import (
	"encoding/json"
	"go/format"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const (
	tutorialPage = "docs/tutorial.md"
	// tutorialModule is what the tutorial calls its module, and tutorialAt where
	// its files are compiled: as part of this one, without being written there.
	tutorialModule = "example.com/shop"
	tutorialAt     = "internal/archtest/tutorial"
)

// tutorialFiles are the Go files of the tutorial by their paths: each block begins
// with its path as a comment.
func tutorialFiles(text string) map[string]string {
	files := map[string]string{}
	for _, m := range regexp.MustCompile("(?s)```go\n// (\\S+\\.go)\n\n(.*?)```").FindAllStringSubmatch(text, -1) {
		files[m[1]] = m[2]
	}
	return files
}

// The code of the tutorial compiles, is formatted, and is all of a program.
func TestTutorialCompiles(t *testing.T) {
	text, err := os.ReadFile("../../" + tutorialPage)
	if err != nil {
		t.Fatal(err)
	}
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	files := tutorialFiles(string(text))
	if blocks := strings.Count(string(text), "```go\n"); len(files) != blocks || blocks < 4 {
		t.Fatalf("%d of %d blocks of Go code begin with a path", len(files), blocks)
	}
	overlay := struct{ Replace map[string]string }{map[string]string{}}
	dir, packages := t.TempDir(), map[string]bool{}
	for name, code := range files {
		if formatted, err := format.Source([]byte(code)); err != nil || string(formatted) != code {
			t.Errorf("%s: %s is not formatted: %v", tutorialPage, name, err)
		}
		at := filepath.Join(dir, strings.ReplaceAll(name, "/", "_"))
		code = strings.ReplaceAll(code, tutorialModule, module+"/"+tutorialAt)
		if err := os.WriteFile(at, []byte(code), 0o600); err != nil {
			t.Fatal(err)
		}
		overlay.Replace[filepath.Join(root, tutorialAt, filepath.FromSlash(name))] = at
		packages["./"+tutorialAt+"/"+path.Dir(name)] = true
	}
	list, err := json.Marshal(overlay)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "overlay.json"), list, 0o600); err != nil {
		t.Fatal(err)
	}
	args := []string{"build", "-overlay", filepath.Join(dir, "overlay.json")} // of several packages: nothing is linked, or written
	for name := range packages {
		args = append(args, name)
	}
	command := exec.CommandContext(t.Context(), "go", args...)
	command.Dir = root
	if out, err := command.CombinedOutput(); err != nil {
		t.Errorf("the code of %s does not compile: %v\n%s", tutorialPage, err, out)
	}
}
