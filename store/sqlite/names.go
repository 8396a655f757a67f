package sqlite

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// SQLite puts the write-ahead log and its index beside the name under which it
// opens a file. A file that processes open under names in two directories has
// two logs: each process works without the writes of the other, and what one
// writes back overwrites the other's. So the store opens a file by one name.
//
// The names are looked at before SQLite opens the file and never through a
// descriptor of it: closing one would take away the locks that this process has
// on the file, which belong to the process and not to the descriptor. Nothing is
// written down either, so that a crash leaves nothing that refuses, and a file
// that was moved, copied or restored opens.

// mostLinks bounds the symbolic links of one path, as Linux does.
const mostLinks = 40

// resolve returns the name that no symbolic link is part of. The file need not
// be there; its directory must.
func resolve(path string) (string, error) {
	for range mostLinks {
		dir, name := filepath.Split(path)
		switch name {
		case "", ".", "..":
			return "", fmt.Errorf("%q names a directory, not a file", path) // Abs would make x.db of x.db/
		}
		if dir == "" {
			dir = "."
		}
		// Links come before "..", which is why nothing here cleans the path first.
		real, err := filepath.EvalSymlinks(dir)
		if errors.Is(err, fs.ErrNotExist) {
			return "", fmt.Errorf("the directory %s does not exist", filepath.Clean(dir))
		} else if err != nil {
			return "", err
		}
		if real, err = filepath.Abs(real); err != nil {
			return "", err
		}
		path = filepath.Join(real, name)
		info, err := os.Lstat(path)
		if errors.Is(err, fs.ErrNotExist) {
			return path, nil
		} else if err != nil {
			return "", err
		}
		if info.Mode()&fs.ModeSymlink == 0 {
			return path, nil
		}
		to, err := os.Readlink(path)
		if err != nil {
			return "", err
		}
		path = to
		if !filepath.IsAbs(to) {
			path = real + string(filepath.Separator) + to
		}
	}
	return "", fmt.Errorf("%s: too many symbolic links", path)
}

// manyNames says that a file has several hard links, and what to do; empty: it has
// one.
func manyNames(path string, info fs.FileInfo) (text, hint string) {
	links, known := linksOf(info)
	if !known || links <= 1 {
		return "", ""
	}
	return fmt.Sprintf("the file %s has %d names (hard links), and each would have a write-ahead log of its own: acknowledged writes would be lost", path, links),
		fmt.Sprintf("stop what has it open and delete all names but one; `find / -xdev -samefile %s` lists them", path)
}
