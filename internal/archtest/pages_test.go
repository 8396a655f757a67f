package archtest_test

import (
	"fmt"
	"go/ast"
	"regexp"
	"strings"
	"testing"
)

// public holds the exported names of the packages that a user can import.
type public struct {
	packages map[string]map[string]bool // package → names
	members  map[string]map[string]bool // type, of whatever package → fields and methods
	called   map[string]bool            // functions, methods and types of all packages
}

func publicNames(t tree) public {
	e := public{map[string]map[string]bool{}, map[string]map[string]bool{}, map[string]bool{}}
	for _, f := range t.files {
		if f.test || f.syntax.Name.Name == "main" || strings.Contains(f.dir, "internal") {
			continue
		}
		for _, decl := range f.syntax.Decls {
			switch d := decl.(type) {
			case *ast.FuncDecl:
				e.function(f.syntax.Name.Name, d)
			case *ast.GenDecl:
				for _, spec := range d.Specs {
					e.spec(f.syntax.Name.Name, spec)
				}
			}
		}
	}
	return e
}

func put(in map[string]map[string]bool, group, name string) {
	if in[group] == nil {
		in[group] = map[string]bool{}
	}
	in[group][name] = true
}

func (e public) function(pkg string, d *ast.FuncDecl) {
	e.called[d.Name.Name] = true
	if d.Recv == nil {
		put(e.packages, pkg, d.Name.Name)
		return
	}
	ast.Inspect(d.Recv.List[0].Type, func(n ast.Node) bool {
		if name, ok := n.(*ast.Ident); ok && name.IsExported() {
			put(e.members, name.Name, d.Name.Name)
		}
		return true
	})
}

func (e public) spec(pkg string, spec ast.Spec) {
	switch s := spec.(type) {
	case *ast.ValueSpec:
		for _, name := range s.Names {
			put(e.packages, pkg, name.Name)
		}
	case *ast.TypeSpec:
		put(e.packages, pkg, s.Name.Name)
		e.called[s.Name.Name] = true
		ast.Inspect(s.Type, func(n ast.Node) bool {
			if field, ok := n.(*ast.Field); ok {
				for _, name := range field.Names {
					put(e.members, s.Name.Name, name.Name)
				}
				if len(field.Names) == 0 { // embedded: whatever it has may be meant
					put(e.members, s.Name.Name, "")
				}
			}
			return true
		})
	}
}

var (
	qualified = regexp.MustCompile(`\b([a-z][a-z0-9]*)\.([A-Z]\w*)(?:\.([A-Z]\w*))?`)
	member    = regexp.MustCompile(`(?:^|[^.\w])([A-Z]\w*)\.([A-Z]\w*)`)
	option    = regexp.MustCompile("(?:^|[`,;] ?)([A-Z]\\w*)\\(")
)

// missingNames finds Go names in the code of pages that no package has. Names
// without a package are not compared on pages about other products.
func missingNames(t tree) []string {
	e := publicNames(t)
	var findings []string
	for name, text := range prose(t) {
		if strings.HasPrefix(name, "docs/decisions/") {
			continue // they tell what was, too
		}
		others := strings.HasPrefix(name, "docs/coming-from-")
		for _, at := range code.FindAllStringIndex(text, -1) {
			span := text[at[0]:at[1]]
			for _, missing := range e.missing(span, others) {
				findings = append(findings, fmt.Sprintf("%s:%d: there is no %s", name, lineOf(text, at[0]), missing))
			}
		}
	}
	return findings
}

// missing are the names of a piece of code that no package has.
func (e public) missing(span string, others bool) (names []string) {
	for _, m := range qualified.FindAllStringSubmatch(span, -1) {
		known := e.packages[m[1]]
		switch {
		case known == nil:
		case m[1] == "db", m[1] == "store" && e.called[m[2]]: // pages have variables of these names
		case !known[m[2]]:
			names = append(names, m[1]+"."+m[2])
		case m[3] != "" && !e.has(m[2], m[3]):
			names = append(names, m[2]+"."+m[3])
		}
	}
	if others || strings.HasPrefix(span, "```") {
		return names
	}
	for _, m := range member.FindAllStringSubmatch(span, -1) {
		if e.members[m[1]] != nil && !e.has(m[1], m[2]) {
			names = append(names, m[1]+"."+m[2])
		}
	}
	for _, m := range option.FindAllStringSubmatch(strings.Trim(span, "`"), -1) {
		if !e.called[m[1]] {
			names = append(names, m[1])
		}
	}
	return names
}

func (e public) has(kind, name string) bool { return e.members[kind][name] || e.members[kind][""] }

func TestPagesNameWhatThePackagesHave(t *testing.T) {
	holds(t, missingNames)
	finds(t, missingNames, map[string]string{
		"docs/a.md":             "`durable.There`, `durable.Gone`, `Config.Size`, `Config.Weight`, `durable.Config.Age`,\n`Old(n)`, `There(n)`, `other.Thing`\n",
		"docs/b.md":             "```go\ndurable.Lost(Old(1))\nstore.Method()\nstore.Nothing()\n```\n",
		"docs/coming-from-c.md": "`Foreign(n)`, `Config.Colour`, `durable.Away`\n",
		"durable/a.go":          "package durable\nfunc There() {}\ntype Config struct{ Size int }\nfunc (c Config) Method() {}\n",
		"store/a.go":            "package store\ntype Store interface{}\n",
	}, "docs/a.md:1: there is no durable.Gone", "docs/a.md:1: there is no Config.Weight", "docs/a.md:1: there is no Config.Age", "docs/a.md:2: there is no Old",
		"docs/b.md:1: there is no durable.Lost", "docs/b.md:1: there is no store.Nothing", "docs/coming-from-c.md:1: there is no durable.Away")
}
