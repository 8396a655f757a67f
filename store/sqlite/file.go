package sqlite

import (
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
)

// file is the database's file and the log beside it, as they were opened.
type file struct {
	path string // without symbolic links
	main os.FileInfo
	log  os.FileInfo // of the write-ahead log; it stays the same while anybody has the database open
}

// prepare follows the symbolic links to the file, makes it if it is not there,
// readable for its owner only, and says what would keep SQLite from using it. It
// never opens a file that is there: closing it would take away the locks this
// process has on it.
func prepare(path string) (*file, error) {
	path, err := resolve(path)
	if err != nil {
		return nil, err
	}
	dir := filepath.Dir(path)
	if info, err := os.Stat(dir); err != nil {
		return nil, err
	} else if !info.IsDir() {
		return nil, fmt.Errorf("%s is not a directory", dir)
	}
	if err := refuseNetwork(dir); err != nil {
		return nil, err
	}
	if err := refuseMounted(path); err != nil {
		return nil, err
	}
	if err := refuseReadOnly(dir); err != nil {
		return nil, fmt.Errorf("the directory %s cannot be written: %w", dir, err)
	}
	made, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	switch {
	case err == nil:
		err = made.Close()
	case errors.Is(err, fs.ErrExist):
		err = refuseReadOnly(path)
	}
	if err != nil {
		return nil, fmt.Errorf("the file %s cannot be written: %w", path, err)
	}
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a file", path)
	}
	if text, hint := manyNames(path, info); text != "" {
		return nil, fmt.Errorf("%s; %s", text, hint)
	}
	return &file{path: path, main: info}, nil
}

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
		if !filepath.IsAbs(dir) {
			here, err := os.Getwd() // which may itself be a link
			if err != nil {
				return "", err
			}
			dir = here + string(filepath.Separator) + dir
		}
		// Links come before "..", which is why nothing here cleans the path first.
		resolved, err := filepath.EvalSymlinks(dir)
		if errors.Is(err, fs.ErrNotExist) {
			return "", fmt.Errorf("the directory %s does not exist", filepath.Clean(dir))
		} else if err != nil {
			return "", err
		}
		path = filepath.Join(resolved, name)
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
			path = resolved + string(filepath.Separator) + to
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

// dsn names the file to the driver; the file must be there.
func (f *file) dsn(pragmas ...string) string { return f.dsnFor("", pragmas...) }

// dsnFor is dsn for transactions that begin in a way of their own.
func (f *file) dsnFor(begin string, pragmas ...string) string {
	query := url.Values{"mode": {"rw"}, "_pragma": pragmas}
	if begin != "" {
		query.Set("_txlock", begin)
	}
	return (&url.URL{Scheme: "file", Path: filepath.ToSlash(f.path), RawQuery: query.Encode()}).String()
}

// opened notes the log, which is there once a connection has read.
func (f *file) opened() error {
	var err error
	f.log, err = os.Stat(f.path + "-wal")
	return err
}

// check notices that the path no longer leads to what was opened: writes would
// go to a file that cannot be found again.
func (f *file) check() error {
	if err := same(f.path, f.main); err != nil {
		return err
	}
	return same(f.path+"-wal", f.log)
}

func same(path string, opened os.FileInfo) error {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%s was deleted while it was in use; restart to begin with what is left", path)
	case err != nil:
		return err
	case !os.SameFile(info, opened):
		return fmt.Errorf("%s was replaced while it was in use; restart to use the new one", path)
	default:
		return nil
	}
}

// exposure says, one line each, who beside this user can put runs into the file,
// and so decide what a worker executes. A file is not refused for it: who
// administers a machine opens files of others.
func (f *file) exposure() []exposed {
	const writable = 0o022 // for group and others
	var all []exposed
	info, err := os.Stat(f.path)
	if err != nil {
		return nil // check reports it
	}
	if owner, known := ownerOf(info); known && owner != os.Geteuid() && owner != 0 {
		all = append(all, exposed{fmt.Sprintf("%s belongs to user %d, who can have any run executed", f.path, owner), "chown it to the user that runs this program, or open another file"})
	}
	if mode := info.Mode().Perm(); mode&others != 0 {
		text := "can reach the arguments of runs"
		if mode&writable != 0 {
			text = "can have any run executed"
		}
		all = append(all, exposed{fmt.Sprintf("%s has mode %04o: others %s", f.path, mode, text), "chmod 600 it"})
	}
	dir := filepath.Dir(f.path)
	if info, err := os.Stat(dir); err == nil {
		if owner, known := ownerOf(info); known && owner != os.Geteuid() && owner != 0 {
			all = append(all, exposed{fmt.Sprintf("the directory %s belongs to user %d, who can replace the file", dir, owner), "keep the file in a directory of the user that runs this program"})
		}
		if mode := info.Mode().Perm(); mode&0o002 != 0 {
			all = append(all, exposed{fmt.Sprintf("the directory %s has mode %04o: others can put files beside the database", dir, mode), "keep the file in a directory that only its owner can write"})
		}
	}
	return all
}

// exposed is one way in which others reach the file, and what helps.
type exposed struct{ text, hint string }
