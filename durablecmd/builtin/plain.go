package builtin

import (
	"context"
	"log/slog"
	"time"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/store"
)

// SleepArgs are the arguments of the job "sleep".
type SleepArgs struct {
	For store.Duration `json:"for"` // such as "3s"
}

// LogArgs are the arguments of the job "log".
type LogArgs struct {
	Message string `json:"message"`
}

// Sleep returns the job "sleep". One attempt may take an hour, unless the run
// says otherwise.
func Sleep() durable.Job[SleepArgs] {
	return durable.NewJob[SleepArgs](NameSleep, durable.Timeout(time.Hour), durable.DeadOnMisfit())
}

// Log returns the job "log".
func Log() durable.Job[LogArgs] {
	return durable.NewJob[LogArgs](NameLog, durable.Timeout(time.Minute), durable.DeadOnMisfit())
}

func sleep(ctx context.Context, run *durable.Run[SleepArgs]) error {
	timer := time.NewTimer(time.Duration(run.Args.For))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func logLine(ctx context.Context, run *durable.Run[LogArgs]) error {
	run.Log().Log(ctx, slog.LevelInfo, "message", "event", "job.message", "message", run.Args.Message)
	return nil
}
