//go:build unix

package sqlite

import (
	"io/fs"
	"syscall"
)

// others are the bits of a file's mode that let other users in.
const others = fs.FileMode(0o077)

// ownerOf is the user that a file belongs to.
func ownerOf(info fs.FileInfo) (user int, known bool) {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, false
	}
	return int(stat.Uid), true
}

// namesOf is how many names a file has: hard links.
func namesOf(info fs.FileInfo) uint64 {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 1
	}
	return uint64(stat.Nlink) //nolint:unconvert // of another type on other systems
}
