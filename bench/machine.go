package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"strings"
)

// machine describes where the figures come from.
func machine() map[string]string {
	return map[string]string{
		"cpu":    strings.TrimSpace(after("/proc/cpuinfo", "model name")),
		"cores":  fmt.Sprint(runtime.NumCPU()),
		"memory": strings.TrimSpace(after("/proc/meminfo", "MemTotal")),
		"kernel": strings.TrimSpace(firstLine("/proc/sys/kernel/osrelease")),
		"system": runtime.GOOS + "/" + runtime.GOARCH,
	}
}

// after returns what follows "key:" in a file.
func after(path, key string) string {
	text, _ := os.ReadFile(path)
	for line := range strings.Lines(string(text)) {
		if name, value, found := strings.Cut(line, ":"); found && strings.TrimSpace(name) == key {
			return value
		}
	}
	return ""
}

func firstLine(path string) string {
	text, _ := os.ReadFile(path)
	line, _, _ := strings.Cut(string(text), "\n")
	return line
}

// versions tells what was compared.
func versions(ctx context.Context, s *server) map[string]string {
	found := map[string]string{"go": runtime.Version()}
	if s != nil {
		found["postgres"] = s.version(ctx)
	}
	if out, err := exec.CommandContext(ctx, "git", "rev-parse", "--short", "HEAD").Output(); err == nil {
		found["durable"] = strings.TrimSpace(string(out))
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return found
	}
	wanted := map[string]string{
		"github.com/riverqueue/river": river, "github.com/hibiken/asynq": redis, "github.com/jackc/pgx/v5": "pgx", "modernc.org/sqlite": "sqlite driver",
	}
	for _, module := range info.Deps {
		if name, ok := wanted[module.Path]; ok {
			found[name] = module.Version
		}
	}
	return found
}
