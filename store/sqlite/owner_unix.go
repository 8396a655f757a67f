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

// linksOf is the number of names that a file has.
func linksOf(info fs.FileInfo) (links uint64, known bool) {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, false
	}
	return uint64(stat.Nlink), true //nolint:unconvert // its type differs between platforms
}
