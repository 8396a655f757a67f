package builtin

import (
	"os/exec"
	"runtime"
	"syscall"
)

// group is a command with the process group it leads. The command is reaped
// last, so that no other process has its number while the group is signalled.
type group struct {
	command *exec.Cmd
}

// start starts the command as the leader of a group. It is killed when this
// process is: that hangs on the thread that started it, which is kept.
func start(command *exec.Cmd) (*group, error) {
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	runtime.LockOSThread()
	if err := command.Start(); err != nil {
		runtime.UnlockOSThread()
		return nil, err
	}
	return &group{command}, nil
}

// release gives the thread back. The caller is the goroutine that called start.
func (g *group) release() { runtime.UnlockOSThread() }

// await waits until the command has ended, and leaves it to be reaped.
func (g *group) await() {
	const (
		byNumber = 1         // P_PID
		leave    = 0x1000000 // WNOWAIT
	)
	for {
		_, _, errno := syscall.Syscall6(syscall.SYS_WAITID, byNumber, uintptr(g.command.Process.Pid), 0, syscall.WEXITED|leave, 0, 0)
		if errno != syscall.EINTR {
			return
		}
	}
}

func (g *group) terminate() { _ = syscall.Kill(-g.command.Process.Pid, syscall.SIGTERM) } // an empty group is no error

func (g *group) kill() { _ = syscall.Kill(-g.command.Process.Pid, syscall.SIGKILL) } // likewise

// reap returns how the command ended.
func (g *group) reap() error { return g.command.Wait() }
