package sqlite

import (
	"fmt"
	"syscall"
)

// networks are the file systems on which SQLite's locks or its shared memory
// do not work between hosts, by the number that statfs(2) gives.
var networks = map[uint32]string{ //nolint:gochecknoglobals // a constant table
	0x6969:     "NFS",
	0xff534d42: "CIFS",
	0xfe534d42: "SMB2",
	0x517b:     "SMB",
	0x01021997: "9p",
	0x564c:     "NCP",
	0x5346414f: "AFS",
	0x73757245: "Coda",
}

func refuseNetwork(dir string) error {
	var stat syscall.Statfs_t
	if err := syscall.Statfs(dir, &stat); err != nil {
		return fmt.Errorf("the file system of %s: %w", dir, err)
	}
	if name, network := networks[uint32(stat.Type)]; network {
		return fmt.Errorf("%s is on a network file system (%s), where SQLite's locks do not hold; use a local disk, or PostgreSQL", dir, name)
	}
	return nil
}

// refuseReadOnly answers also for a read-only mount, and asks without opening.
func refuseReadOnly(path string) error {
	const write = 2
	return syscall.Access(path, write)
}

// freeSpace is what is left for this user on the disk, bytes.
func freeSpace(dir string) (bytes uint64, known bool) {
	var stat syscall.Statfs_t
	if err := syscall.Statfs(dir, &stat); err != nil {
		return 0, false
	}
	return stat.Bavail * uint64(stat.Bsize), true
}

// sharedElapsed says that lease.Elapsed is the same for all processes of the
// machine.
const sharedElapsed = true
