package archtest_test

import (
	"fmt"
	"go/ast"
	"regexp"
	"strings"
	"testing"
)

// packageDocs finds packages without a doc comment.
func packageDocs(t tree) []string {
	first, documented := map[string]string{}, map[string]bool{}
	for _, f := range t.files {
		if f.test || f.generated {
			continue
		}
		if first[f.dir] == "" {
			first[f.dir] = f.path
		}
		documented[f.dir] = documented[f.dir] || f.syntax.Doc != nil
	}
	var findings []string
	for dir, name := range first {
		if !documented[dir] {
			findings = append(findings, fmt.Sprintf("%s:1: package %s has no doc comment", name, dir))
		}
	}
	return findings
}

// exportedDocs finds exported names without a comment. A group of constants or
// variables may share one; methods of unexported types need none.
func exportedDocs(t tree) []string {
	var findings []string
	for _, f := range t.written() {
		if f.syntax.Name.Name == "main" {
			continue
		}
		for _, decl := range f.syntax.Decls {
			switch d := decl.(type) {
			case *ast.FuncDecl:
				if d.Name.IsExported() && d.Doc == nil && receiverExported(d) {
					findings = append(findings, f.finding(d, "%s is exported and not documented", d.Name.Name))
				}
			case *ast.GenDecl:
				findings = append(findings, undocumented(f, d)...)
			}
		}
	}
	return findings
}

func undocumented(f *source, d *ast.GenDecl) []string {
	var findings []string
	for _, spec := range d.Specs {
		switch s := spec.(type) {
		case *ast.TypeSpec:
			if s.Name.IsExported() && d.Doc == nil && s.Doc == nil {
				findings = append(findings, f.finding(s, "%s is exported and not documented", s.Name.Name))
			}
			if i, ok := s.Type.(*ast.InterfaceType); ok && s.Name.IsExported() {
				findings = append(findings, undocumentedMethods(f, s.Name.Name, i)...)
			}
		case *ast.ValueSpec:
			for _, name := range s.Names {
				if name.IsExported() && d.Doc == nil && s.Doc == nil && s.Comment == nil {
					findings = append(findings, f.finding(s, "%s is exported and not documented", name.Name))
				}
			}
		}
	}
	return findings
}

// undocumentedMethods finds methods of a contract that promise nothing.
func undocumentedMethods(f *source, name string, i *ast.InterfaceType) []string {
	var findings []string
	for _, method := range i.Methods.List {
		if len(method.Names) > 0 && method.Names[0].IsExported() && method.Doc == nil && method.Comment == nil {
			findings = append(findings, f.finding(method, "%s.%s is exported and not documented", name, method.Names[0].Name))
		}
	}
	return findings
}

func receiverExported(d *ast.FuncDecl) bool {
	if d.Recv == nil {
		return true
	}
	kind := d.Recv.List[0].Type
	for {
		switch k := kind.(type) {
		case *ast.StarExpr:
			kind = k.X
		case *ast.IndexExpr:
			kind = k.X
		case *ast.IndexListExpr:
			kind = k.X
		case *ast.Ident:
			return k.IsExported()
		default:
			return true
		}
	}
}

// openEnds finds notes to oneself that nobody else will come to read.
func openEnds(t tree) []string {
	note := regexp.MustCompile(`\b(TODO|FIXME|XXX|HACK)\b(\(#\d+\))?`)
	var findings []string
	for _, f := range t.files {
		for _, group := range f.syntax.Comments {
			for _, line := range group.List {
				for _, found := range note.FindAllString(line.Text, -1) {
					if !strings.HasPrefix(found, "TODO(#") {
						findings = append(findings, f.finding(line, "%s names no issue: TODO(#12)", found))
					}
				}
			}
		}
	}
	return findings
}

func TestPackagesAreDocumented(t *testing.T) {
	holds(t, packageDocs)
	finds(t, packageDocs, map[string]string{
		"a/a.go":      "package a\n",
		"b/b.go":      "// Package b is documented.\npackage b\n",
		"b/c.go":      "package b\n",
		"c/c_test.go": "package c_test\n",
	}, "a/a.go:1: package a has no doc comment")
}

func TestExportedNamesAreDocumented(t *testing.T) {
	holds(t, exportedDocs)
	finds(t, exportedDocs, map[string]string{
		"a.go": "package a\nfunc F() {}\nfunc g() {}\ntype T struct{}\nfunc (t *T) M() {}\ntype u struct{}\nfunc (u) M() {}\nvar V int\n",
		"b.go": "package a\n// G is documented.\nfunc G[A any]() {}\n// I is documented.\ntype I interface {\n\tN()\n}\n",
		"c.go": "package a\n// Letters.\nconst (\n\tX = 1\n\tY = 2\n)\nconst (\n\tZ = 3 // the last\n)\n",
		"d.go": "package a\n// P is documented.\ntype P[A any] struct{}\nfunc (p P[A]) M() {}\n",
	}, "a.go:2: F is", "a.go:4: T is", "a.go:5: M is", "a.go:8: V is", "b.go:6: I.N is", "d.go:4: M is")
}

func TestNotesNameAnIssue(t *testing.T) {
	holds(t, openEnds)
	note := "TO" + "DO"
	finds(t, openEnds, map[string]string{
		"a.go": "package a\n// " + note + ": later\n",
		"b.go": "package a\n// " + note + "(#12): later\n",
	}, "a.go:2: ")
}
