package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// module is the path of the module that is released.
const module = "github.com/durable-worker/durable-worker"

// program is what is built.
const program = "durable-worker"

// release is one version of the sources in a directory.
type release struct {
	version string
	root    string
	out     io.Writer
}

// platform is what a program is built for.
type platform struct {
	os, arch string
}

// platforms are those of a release.
func platforms() (all []platform) {
	for _, system := range []string{"linux", "darwin", "windows"} {
		for _, arch := range []string{"amd64", "arm64"} {
			all = append(all, platform{system, arch})
		}
	}
	return all
}

func (p platform) String() string { return p.os + "/" + p.arch }

// file is the name of the program on the platform.
func (p platform) file() string {
	if p.os == "windows" {
		return program + ".exe"
	}
	return program
}

// say prints a line.
func (r release) say(format string, args ...any) {
	fmt.Fprintf(r.out, format+"\n", args...)
}

// build builds the stripped program. The same sources and the same Go give the same
// bytes, wherever they are built: no paths, no build id, no state of the working copy.
func (r release) build(ctx context.Context, p platform, to string, env ...string) error {
	return r.compile(ctx, p, to, "-s -w -buildid= -X main.version="+r.version, env...)
}

// notInlined names the packages whose functions the compiler does not inline. Of the Redis
// client, which locks use four commands of, that makes the program 2 MB smaller; a call of it
// waits for the network anyway.
const notInlined = "github.com/redis/...=-l"

func (r release) compile(ctx context.Context, p platform, to, ldflags string, env ...string) error {
	to, err := filepath.Abs(to)
	if err != nil {
		return err
	}
	env = append([]string{"GOOS=" + p.os, "GOARCH=" + p.arch, "CGO_ENABLED=0", "GOFLAGS=", "GOWORK=off"}, env...)
	_, err = r.goTool(ctx, env, "build", "-trimpath", "-buildvcs=false", "-tags=timetzdata", "-gcflags="+notInlined, "-ldflags="+ldflags, "-o", to, "./cmd/"+program)
	return err
}

// goTool runs the go command in the sources, and returns what it prints.
func (r release) goTool(ctx context.Context, env []string, args ...string) (string, error) {
	return r.command(ctx, env, "go", args...)
}

func (r release) command(ctx context.Context, env []string, name string, args ...string) (string, error) {
	command := exec.CommandContext(ctx, name, args...) //nolint:gosec // go and git, with arguments from here
	command.Dir = r.root
	command.Env = append(os.Environ(), env...)
	var printed, complained strings.Builder
	command.Stdout, command.Stderr = &printed, &complained
	if err := command.Run(); err != nil {
		return "", fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, complained.String())
	}
	return printed.String(), nil
}

// made is the instant that everything in the release bears: that of SOURCE_DATE_EPOCH,
// or of the commit, or else the first day of 2026.
func (r release) made(ctx context.Context) time.Time {
	seconds := os.Getenv("SOURCE_DATE_EPOCH")
	if seconds == "" {
		seconds, _ = r.command(ctx, nil, "git", "log", "-1", "--format=%ct")
	}
	if n, err := strconv.ParseInt(strings.TrimSpace(seconds), 10, 64); err == nil {
		return time.Unix(n, 0).UTC()
	}
	return time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
}
