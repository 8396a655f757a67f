package archtest_test

import (
	"encoding/json"
	"fmt"
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
	// tutorialModule is what the tutorial calls its module, and snippetsAt where
	// the code of pages is compiled: as part of this one, without being written there.
	tutorialModule = "example.com/shop"
	snippetsAt     = "internal/archtest/snippets"
	// framesAt has a file for each page whose code is not a whole program: what the
	// page leaves out, with a line //snippet for each block, in order.
	framesAt = "testdata/snippets"
)

var (
	goBlock  = regexp.MustCompile("(?ms)^ *```go[^\n]*\n(.*?)^ *```")
	goFile   = regexp.MustCompile(`(?s)^// (\S+\.go)\n\n(.*)`)
	isWhole  = regexp.MustCompile(`(?m)^package \w+$`)
	inFrames = regexp.MustCompile(`(?m)^\t*//snippet\n`)
)

// goBlocks are the blocks of Go code of a page.
func goBlocks(text string) (blocks []string) {
	for _, m := range goBlock.FindAllStringSubmatch(text, -1) {
		blocks = append(blocks, m[1])
	}
	return blocks
}

// tutorialFiles are the Go files of the tutorial by their paths: each block begins
// with its path as a comment.
func tutorialFiles(text string) map[string]string {
	files := map[string]string{}
	for _, block := range goBlocks(text) {
		if m := goFile.FindStringSubmatch(block); m != nil {
			files[m[1]] = m[2]
		}
	}
	return files
}

// framed puts the code of a page into the page's frame. A block that is a whole file
// needs none.
func framed(page, text string) (files map[string]string, faults []string) {
	files = map[string]string{}
	name := strings.ToLower(strings.TrimSuffix(path.Base(page), ".md"))
	var parts []string
	for i, block := range goBlocks(text) {
		switch formatted, err := format.Source([]byte(block)); {
		case err != nil:
			faults = append(faults, fmt.Sprintf("%s: block %d: %v", page, i+1, err))
		case string(formatted) != block:
			faults = append(faults, fmt.Sprintf("%s: block %d is not formatted", page, i+1))
		case isWhole.MatchString(block):
			files[fmt.Sprintf("%s/%d/main.go", name, i+1)] = block
		default:
			parts = append(parts, block)
		}
	}
	if len(parts) == 0 {
		return files, faults
	}
	frame, err := os.ReadFile(filepath.Join(framesAt, name+".go"))
	if err != nil {
		return files, append(faults, fmt.Sprintf("%s: its code has no frame: %v", page, err))
	}
	if places := len(inFrames.FindAll(frame, -1)); places != len(parts) {
		return files, append(faults, fmt.Sprintf("%s has %d blocks of code, and its frame places for %d", page, len(parts), places))
	}
	files[name+"/frame.go"] = inFrames.ReplaceAllStringFunc(string(frame), func(string) string {
		part := parts[0]
		parts = parts[1:]
		return part
	})
	return files, faults
}

// The code of every page compiles and is formatted, and that of the tutorial is all of a
// program.
func TestCodeOfPagesCompiles(t *testing.T) {
	pages, err := filepath.Glob("../../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for _, at := range append(pages, "../../README.md") {
		text, err := os.ReadFile(at)
		if err != nil {
			t.Fatal(err)
		}
		page := strings.TrimPrefix(filepath.ToSlash(at), "../../")
		own, faults := framed(page, string(text))
		if page == tutorialPage {
			own, faults = tutorialFiles(string(text)), nil
			if blocks := len(goBlocks(string(text))); len(own) != blocks || blocks < 4 {
				t.Errorf("%s: %d of %d blocks of Go code begin with a path", page, len(own), blocks)
			}
			for name, code := range own {
				if formatted, err := format.Source([]byte(code)); err != nil || string(formatted) != code {
					t.Errorf("%s: %s is not formatted: %v", page, name, err)
				}
			}
		}
		for _, fault := range faults {
			t.Error(fault)
		}
		for name, code := range own {
			files[name] = code
		}
	}
	if out, err := compile(t, files); err != nil {
		t.Errorf("the code of the pages does not compile: %v\n%s", err, out)
	}
}

// The frame of a page notices a block that has no place, and one that is not Go.
func TestFramesTakeAllCode(t *testing.T) {
	block := func(code string) string { return "```go\n" + code + "\n```\n" }
	for _, one := range []struct{ name, text, fault string }{
		{"too many", block("x()") + block("y()"), "has 2 blocks of code, and its frame places for 1"},
		{"not formatted", block("x( )"), "is not formatted"},
		{"left out", block("…"), "illegal character"},
	} {
		t.Run(one.name, func(t *testing.T) {
			_, faults := framed("docs/keys.md", one.text)
			if text := strings.Join(faults, "\n"); !strings.Contains(text, one.fault) {
				t.Errorf("want %q, got %q", one.fault, text)
			}
		})
	}
	if _, faults := framed("docs/none.md", block("x()")); len(faults) != 1 || !strings.Contains(faults[0], "has no frame") {
		t.Errorf("a page without a frame: %q", faults)
	}
}

// compile compiles files by their paths in the tutorial's module as part of this one. It
// links and writes nothing.
func compile(t *testing.T, files map[string]string) ([]byte, error) {
	t.Helper()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	overlay := struct{ Replace map[string]string }{map[string]string{}}
	dir, packages := t.TempDir(), map[string]bool{}
	for name, code := range files {
		at := filepath.Join(dir, strings.ReplaceAll(name, "/", "_"))
		code = strings.ReplaceAll(code, tutorialModule, module+"/"+snippetsAt)
		if err := os.WriteFile(at, []byte(code), 0o600); err != nil {
			t.Fatal(err)
		}
		overlay.Replace[filepath.Join(root, snippetsAt, filepath.FromSlash(name))] = at
		packages["./"+snippetsAt+"/"+path.Dir(name)] = true
	}
	list, err := json.Marshal(overlay)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "overlay.json"), list, 0o600); err != nil {
		t.Fatal(err)
	}
	args := []string{"build", "-overlay", filepath.Join(dir, "overlay.json")}
	for name := range packages {
		args = append(args, name)
	}
	command := exec.CommandContext(t.Context(), "go", args...)
	command.Dir = root
	return command.CombinedOutput()
}
