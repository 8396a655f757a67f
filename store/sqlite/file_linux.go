package sqlite

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
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

// refuseMounted refuses a file that is mounted alone, into a container for
// instance: the log would stay in the container's directory, away from the
// processes that open the file where it comes from, and go with the container.
// Where /proc cannot be read, nothing is refused.
func refuseMounted(path string) error {
	table, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil || !mountedAlone(parseMounts(string(table)), path) {
		return nil //nolint:nilerr // there is no other way to find out
	}
	return fmt.Errorf("the file %s is mounted without its directory: here it would have a write-ahead log of its own, and acknowledged writes would be lost; "+
		"mount the directory instead of the file", path)
}

// mountPoint is one line of the table of mounts.
type mountPoint struct {
	id, parent string
	device     string // major:minor
	root       string // what of the device is mounted
	at         string // where
}

// mountedAlone reports whether a file is a mount point of its own, and not merely
// mounted over itself, as a service manager does to make it writable.
func mountedAlone(mounts []mountPoint, path string) bool {
	var dir, file *mountPoint
	for _, one := range mountsOf(mounts, path) {
		if one.at == path {
			file = one
		} else {
			dir = one
		}
	}
	if file == nil {
		return false
	}
	if dir == nil {
		return true
	}
	inside, err := filepath.Rel(dir.at, path)
	return err != nil || file.device != dir.device || file.root != filepath.Join(dir.root, inside)
}

// mountsOf returns the mounts that a path leads through, from the root on. It goes
// from mount to mount as the kernel does, because a mount that a later one covers
// is in the table too.
func mountsOf(mounts []mountPoint, path string) (through []*mountPoint) {
	listed := map[string]bool{}
	for _, one := range mounts {
		listed[one.id] = true
	}
	begins := func(one *mountPoint) bool { return one.parent == one.id || !listed[one.parent] }
	for range mounts {
		var next *mountPoint
		for i := range mounts {
			one := &mounts[i]
			if begins(one) && leads(one.at, path) && (next == nil || len(one.at) < len(next.at)) {
				next = one
			}
		}
		if next == nil {
			break
		}
		through = append(through, next)
		begins = func(one *mountPoint) bool { return one.parent == next.id && one.id != next.id }
	}
	return through
}

// leads reports whether a path is that of a mount, or below it.
func leads(at, path string) bool {
	return at == path || at == "/" || strings.HasPrefix(path, at+"/")
}

// parseMounts reads what proc_pid_mountinfo(5) describes; lines that say less
// are skipped.
func parseMounts(table string) (mounts []mountPoint) {
	for line := range strings.Lines(table) {
		fields := strings.Fields(line)
		const id, parent, device, root, at = 0, 1, 2, 3, 4
		if len(fields) > at {
			mounts = append(mounts, mountPoint{fields[id], fields[parent], fields[device], unescape(fields[root]), unescape(fields[at])})
		}
	}
	return mounts
}

// unescape turns \040 into the byte with that code.
func unescape(text string) string {
	var b strings.Builder
	for {
		before, after, found := strings.Cut(text, `\`)
		b.WriteString(before)
		if !found {
			return b.String()
		}
		const digits = 3
		if len(after) >= digits {
			if code, err := strconv.ParseUint(after[:digits], 8, 8); err == nil {
				b.WriteByte(byte(code))
				text = after[digits:]
				continue
			}
		}
		b.WriteByte('\\')
		text = after
	}
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
