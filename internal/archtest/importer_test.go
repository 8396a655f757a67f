package archtest_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestAModuleThatImportsThisOneCanBeTidied: exclude and replace count only in
// the main module, so a requirement that cannot be had stays hidden here and
// stops everyone who imports the module.
func TestAModuleThatImportsThisOneCanBeTidied(t *testing.T) {
	t.Parallel()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	mod, err := os.ReadFile(filepath.Join(root, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	if hidden := regexp.MustCompile(`(?m)^(exclude|replace)\b.*`).FindString(string(mod)); hidden != "" {
		t.Errorf("go.mod: %q does not count for those who import the module", hidden)
	}
	sum, err := os.ReadFile(filepath.Join(root, "go.sum")) // what has been verified here is not asked for again
	if err != nil {
		t.Fatal(err)
	}
	version := regexp.MustCompile(`(?m)^go \S+`).FindString(string(mod))
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod": fmt.Sprintf("module importer.example\n\n%s\n\nrequire %s v0.0.0\n\nreplace %[2]s => %s\n", version, module, root),
		"go.sum": string(sum),
		"main.go": "package main\n\nimport \"" + module + "/durablecmd\"\n\n" +
			"func main() { durablecmd.Main(nil) }\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, args := range [][]string{{"mod", "tidy"}, {"list", "-deps", "."}} {
		command := exec.Command("go", args...) //nolint:noctx // a test
		command.Dir = dir
		command.Env = append(os.Environ(), "GOFLAGS="+strings.TrimSpace(os.Getenv("GOFLAGS")+" -mod=mod"), "GOWORK=off")
		if output, err := command.CombinedOutput(); err != nil {
			t.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, output)
		}
	}
}
