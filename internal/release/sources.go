package main

import (
	"io/fs"
	"path"
	"slices"
	"strings"
)

// sources is a working copy without what is not of the module: hidden directories,
// other modules, and what was built.
type sources struct{ fs.FS }

// ReadDir leaves that out.
func (s sources) ReadDir(name string) ([]fs.DirEntry, error) {
	entries, err := fs.ReadDir(s.FS, name)
	return slices.DeleteFunc(entries, func(e fs.DirEntry) bool {
		if !e.IsDir() {
			return !e.Type().IsRegular() || path.Ext(e.Name()) == ".test"
		}
		_, err := fs.Stat(s.FS, path.Join(name, e.Name(), "go.mod"))
		return err == nil || strings.HasPrefix(e.Name(), ".") || name == "." && (e.Name() == "bin" || e.Name() == "dist")
	}), err
}
