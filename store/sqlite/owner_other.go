//go:build !unix

package sqlite

import "io/fs"

// others is nothing on this platform: modes do not say who may read.
const others = fs.FileMode(0)

// ownerOf knows nothing on this platform.
func ownerOf(fs.FileInfo) (user int, known bool) { return 0, false }

// linksOf knows nothing on this platform.
func linksOf(fs.FileInfo) (links uint64, known bool) { return 0, false }
