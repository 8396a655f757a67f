package pgtest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// programs are a server's programs and the user they run as.
type programs struct {
	dir        string
	credential *syscall.Credential // nil: our own user
}

// findPrograms looks where servers are usually installed; the server refuses to
// run as root, so root runs it as another user.
func findPrograms() (programs, error) {
	var p programs
	for _, dir := range directories() {
		_, errInit := os.Stat(filepath.Join(dir, "initdb"))
		_, errServer := os.Stat(filepath.Join(dir, "postgres"))
		if errInit == nil && errServer == nil {
			p.dir = dir
			break
		}
	}
	if p.dir == "" {
		return p, errors.New("no PostgreSQL server is installed; the tests need one:\n\n\tsudo apt-get install -y postgresql\n\n" +
			"or set DURABLE_TEST_DATABASE_URL to a server whose user may create databases")
	}
	if os.Geteuid() != 0 {
		return p, nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		owner, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, errUID := strconv.ParseUint(owner.Uid, 10, 32)
		gid, errGID := strconv.ParseUint(owner.Gid, 10, 32)
		if errUID == nil && errGID == nil {
			p.credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid), NoSetGroups: true}
			return p, nil
		}
	}
	return p, errors.New("the server does not run as root, and there is neither a user postgres nor nobody")
}

func directories() []string {
	var dirs []string
	if server, err := exec.LookPath("postgres"); err == nil {
		dirs = append(dirs, filepath.Dir(server))
	}
	versions, _ := filepath.Glob("/usr/lib/postgresql/*/bin")
	slices.SortFunc(versions, func(a, b string) int { return versionOf(b) - versionOf(a) })
	dirs = append(append(dirs, versions...), "/usr/local/bin", "/usr/local/pgsql/bin", "/opt/homebrew/bin")
	if out, err := exec.Command("pg_config", "--bindir").Output(); err == nil {
		dirs = append(dirs, strings.TrimSpace(string(out)))
	}
	return dirs
}

func versionOf(dir string) int {
	n, _ := strconv.Atoi(filepath.Base(filepath.Dir(dir)))
	return n
}

// path is where a program is: beside the server, or beside what the server's name links to.
func (p programs) path(name string) string {
	path := filepath.Join(p.dir, name)
	if _, err := os.Stat(path); err == nil {
		return path
	}
	if server, err := filepath.EvalSymlinks(filepath.Join(p.dir, "postgres")); err == nil {
		return filepath.Join(filepath.Dir(server), name)
	}
	return path
}

func (p programs) command(name string, args ...string) *exec.Cmd {
	return p.asOwner(p.path(name), args...)
}

// asOwner makes a command of the server's user, in a process group of its own
// so that an interrupt from the keyboard does not reach it.
func (p programs) asOwner(path string, args ...string) *exec.Cmd {
	cmd := exec.Command(path, args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Credential: p.credential}
	cmd.Env = append(os.Environ(), "LC_ALL=C", "TZ=UTC")
	return cmd
}

// own gives a directory to the server's user.
func (p programs) own(dir string) error {
	if p.credential == nil {
		return nil
	}
	if err := os.Chown(dir, int(p.credential.Uid), int(p.credential.Gid)); err != nil {
		return fmt.Errorf("own %s: %w", dir, err)
	}
	return nil
}
