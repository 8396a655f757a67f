//go:build unix && !linux

package builtin

import (
	"os/exec"
	"syscall"
)

// group is a command with the process group it leads. Here the command is
// reaped before its group is killed.
type group struct {
	command *exec.Cmd
	err     error // of await
}

func start(command *exec.Cmd) (*group, error) {
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := command.Start(); err != nil {
		return nil, err
	}
	return &group{command: command}, nil
}

func (g *group) release() {}

func (g *group) await() { g.err = g.command.Wait() }

func (g *group) terminate() { _ = syscall.Kill(-g.command.Process.Pid, syscall.SIGTERM) } // an empty group is no error

func (g *group) kill() { _ = syscall.Kill(-g.command.Process.Pid, syscall.SIGKILL) } // likewise

func (g *group) reap() error { return g.err }
