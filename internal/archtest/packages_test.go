package archtest_test

import (
	"fmt"
	"go/ast"
	"go/doc"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"testing"
)

// packagesPage says for each public package who needs it.
const packagesPage = "docs/packages.md"

// publicPackages finds packages that users can import and that have no example whose
// output the tests compare, or that the page of packages does not name.
func publicPackages(t tree) []string {
	page, _ := fs.ReadFile(t.root, packagesPage)
	examples, exports := map[string]bool{}, map[string]bool{}
	for _, f := range t.files {
		if f.dir == "." || f.syntax.Name.Name == "main" || strings.Contains("/"+f.dir+"/", "/internal/") {
			continue
		}
		if f.test {
			examples[f.dir] = examples[f.dir] || slices.ContainsFunc(doc.Examples(f.syntax), func(e *doc.Example) bool { return e.Output != "" || e.EmptyOutput })
		}
		for _, decl := range f.syntax.Decls {
			switch d := decl.(type) {
			case *ast.FuncDecl:
				exports[f.dir] = exports[f.dir] || !f.test && d.Recv == nil && d.Name.IsExported()
			case *ast.GenDecl:
				exports[f.dir] = exports[f.dir] || !f.test && slices.ContainsFunc(specNames(d), (*ast.Ident).IsExported)
			}
		}
	}
	var findings []string
	for _, dir := range slices.Sorted(maps.Keys(exports)) {
		if !exports[dir] || strings.HasPrefix(dir, "examples/") {
			continue
		}
		if !examples[dir] {
			findings = append(findings, fmt.Sprintf("%s: no Example with an Output in its tests", dir))
		}
		if !strings.Contains(string(page), "[`"+dir+"`](../"+dir+")") {
			findings = append(findings, fmt.Sprintf("%s: %s does not say who needs it", dir, packagesPage))
		}
	}
	return findings
}

func TestPublicPackagesHaveExamplesAndReaders(t *testing.T) {
	holds(t, publicPackages)
	finds(t, publicPackages, map[string]string{
		"docs/packages.md":     "| [`lease`](../lease) | authors |\n| [`lock`](../lock) | all |\n",
		"lease/lease.go":       "package lease\nfunc Lease() {}\n",
		"lease/lease_test.go":  "package lease_test\nfunc ExampleLease() {} // it is only compiled\n",
		"lock/lock.go":         "package lock\ntype Lock struct{}\n",
		"lock/example_test.go": "package lock_test\nfunc ExampleLock() {\n\t// Output:\n}\n",
		"store/store.go":       "package store\nvar Err error\n",
		"store/store_test.go":  "package store_test\nfunc ExampleErr() {\n\t// Output: x\n}\n",
		"store/internal/x.go":  "package internal\nvar X int\n",
		"cmd/x/main.go":        "package main\nvar X int\n",
		"deploy/doc.go":        "package deploy\n",
	}, "lease: no Example", "store: docs/packages.md does not say")
}
