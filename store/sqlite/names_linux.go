package sqlite

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// The log that a process uses is announced by a lock on one byte of the database's file, far
// beyond its end and the bytes that SQLite locks; which byte follows from the log's identity.
// It is a lock of an open file description (fcntl(2)), on one that SQLite has opened: a
// description of the store's own could not be closed without taking away the locks that
// SQLite has on the file. SQLite keeps its descriptions open as long as a connection of the
// process uses the file. The lock ends with the description, however the process ends.
const (
	ofdGetLock = 36 // F_OFD_GETLK
	ofdSetLock = 37 // F_OFD_SETLK

	notesFrom = int64(1) << 61
	notesMost = int64(1) << 60
)

// note is the byte that stands for the log.
func (f *file) note() int64 {
	stat, ok := f.log.Sys().(*syscall.Stat_t)
	if !ok {
		return notesFrom
	}
	h := fnv.New64a()
	_ = binary.Write(h, binary.LittleEndian, [2]uint64{uint64(stat.Dev), stat.Ino}) // writing to a hash cannot fail
	return notesFrom + int64(h.Sum64()%uint64(notesMost))                           //nolint:gosec // below notesMost
}

// otherLogs reports whether another log of the file is in use than this one's, and whether
// that can be known here.
func (f *file) otherLogs() (others, known bool) {
	at := f.note()
	for _, fd := range f.descriptions() {
		for _, part := range [][2]int64{{notesFrom, at - notesFrom}, {at + 1, notesFrom + notesMost - at - 1}} {
			if part[1] == 0 { // to fcntl, all the rest
				continue
			}
			lock := syscall.Flock_t{Type: syscall.F_WRLCK, Start: part[0], Len: part[1]}
			if syscall.FcntlFlock(fd, ofdGetLock, &lock) != nil {
				continue
			}
			known = true
			others = others || lock.Type != syscall.F_UNLCK
		}
	}
	return others, known
}

func (f *file) noteLog()   { f.setNote(syscall.F_RDLCK) }
func (f *file) unnoteLog() { f.setNote(syscall.F_UNLCK) }

// setNote locks the log's byte, or unlocks it. Where that is not possible, nothing is
// announced: others cannot be told.
func (f *file) setNote(kind int16) {
	for _, fd := range f.descriptions() {
		if syscall.FcntlFlock(fd, ofdSetLock, &syscall.Flock_t{Type: kind, Start: f.note(), Len: 1}) == nil && kind != syscall.F_UNLCK {
			return
		}
	}
}

// descriptions are the process's descriptors of the database's file. The caller has a
// connection that uses the file: SQLite closes none of them meanwhile.
func (f *file) descriptions() (fds []uintptr) {
	main, ok := f.main.Sys().(*syscall.Stat_t)
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil || !ok {
		return nil
	}
	for _, entry := range entries {
		fd, err := strconv.Atoi(entry.Name())
		var stat syscall.Stat_t
		if err == nil && syscall.Fstat(fd, &stat) == nil && stat.Dev == main.Dev && stat.Ino == main.Ino {
			fds = append(fds, uintptr(fd)) //nolint:gosec // a descriptor
		}
	}
	return fds
}

// refuseMountedAlone refuses a file that is itself a mount point: its log lies in a directory
// that is not the one of the file that is mounted.
func refuseMountedAlone(path string) error {
	mounts, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return nil //nolint:nilerr // not known here
	}
	defer func() { _ = mounts.Close() }() // it was only read
	const mountPoint = 4 // the field, see proc(5)
	for lines := bufio.NewScanner(mounts); lines.Scan(); {
		if fields := strings.Fields(lines.Text()); len(fields) > mountPoint && unescaped(fields[mountPoint]) == path {
			return fmt.Errorf("the file %s is mounted alone, so that its write-ahead log lies in another directory than the file, where other processes do not find it: mount the directory with the file, and open it there", path)
		}
	}
	return nil
}

// unescaped is a path as it is, which mountinfo writes with octal escapes.
func unescaped(path string) string {
	return filepath.Clean(strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(path))
}
