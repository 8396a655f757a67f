package builtin

import (
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"unicode"
)

// Programs are what the job exec may start. The zero value is none.
type Programs struct {
	list []Program
}

// Program is a program that the job exec may start.
type Program struct {
	Name string // as a run says it
	Path string // absolute
}

var programName = regexp.MustCompile(`^[A-Za-z0-9_.-]{1,64}$`)

// ParsePrograms reads a list separated by commas of name=/absolute/path, or of
// the path alone, which is then also the name:
// report=/usr/local/bin/report,/bin/true. Whether the programs are there is not
// examined. Empty text is an empty list.
func ParsePrograms(text string) (Programs, error) {
	var p Programs
	if text == "" {
		return p, nil
	}
	for part := range strings.SplitSeq(text, ",") {
		part = strings.TrimSpace(part)
		one, err := parseProgram(part)
		if err == nil && slices.ContainsFunc(p.list, func(other Program) bool { return other.Name == one.Name }) {
			err = errors.New("the name is given twice")
		}
		if err != nil {
			return Programs{}, fmt.Errorf("%q: %w", part, err)
		}
		p.list = append(p.list, one)
	}
	return p, nil
}

func parseProgram(text string) (Program, error) {
	name, path, named := strings.Cut(text, "=")
	if !named || strings.HasPrefix(text, "/") {
		name, path = text, text
	} else if !programName.MatchString(name) {
		return Program{}, errors.New("want a name of 1 to 64 letters, digits, dots, hyphens and underscores before the =")
	}
	switch {
	case strings.ContainsFunc(path, func(r rune) bool { return unicode.In(r, unicode.Cc, unicode.Cf) }):
		return Program{}, errors.New("control and format characters are not allowed")
	case !filepath.IsAbs(path) || filepath.Clean(path) != path:
		return Program{}, errors.New("want an absolute path without . and .. and double slashes")
	case path == filepath.Dir(path):
		return Program{}, errors.New("want a program, not the root")
	}
	return Program{Name: name, Path: path}, nil
}

// String writes the list as ParsePrograms reads it.
func (p Programs) String() string {
	parts := make([]string, len(p.list))
	for i, one := range p.list {
		if parts[i] = one.Path; one.Name != one.Path {
			parts[i] = one.Name + "=" + one.Path
		}
	}
	return strings.Join(parts, ",")
}

// List returns the programs. The caller owns it.
func (p Programs) List() []Program { return slices.Clone(p.list) }

// find returns the path of a program that is allowed.
func (p Programs) find(name string) (path string, found bool) {
	for _, one := range p.list {
		if one.Name == name {
			return one.Path, true
		}
	}
	return "", false
}
