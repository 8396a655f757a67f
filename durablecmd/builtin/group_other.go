//go:build !unix

package builtin

import "os/exec"

// group is a command alone: there are no process groups here, and no SIGTERM.
type group struct {
	command *exec.Cmd
	err     error // of await
}

func start(command *exec.Cmd) (*group, error) {
	if err := command.Start(); err != nil {
		return nil, err
	}
	return &group{command: command}, nil
}

func (g *group) release() {}

func (g *group) await() { g.err = g.command.Wait() }

func (g *group) terminate() {}

func (g *group) kill() { _ = g.command.Process.Kill() } // it may have ended

func (g *group) reap() error { return g.err }
