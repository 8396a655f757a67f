package durablecmd

import (
	"context"
	"log/slog"
	"time"

	"github.com/durable-worker/durable-worker/durable"
)

// SleepArgs are the arguments of the job "sleep".
type SleepArgs struct {
	For durable.Duration `json:"for"` // such as "3s"
}

// LogArgs are the arguments of the job "log".
type LogArgs struct {
	Message string `json:"message"`
}

// Sleep returns the job "sleep".
func Sleep() durable.Job[SleepArgs] { return durable.NewJob[SleepArgs]("sleep") }

// Log returns the job "log".
func Log() durable.Job[LogArgs] { return durable.NewJob[LogArgs]("log", durable.Timeout(time.Minute)) }

// RegisterJobs gives a worker the jobs of the stock program: sleep, which
// waits, and log, which logs a message.
func RegisterJobs(worker *durable.Worker) {
	durable.Register(worker, Sleep(), sleep)
	durable.Register(worker, Log(), logMessage)
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

func logMessage(ctx context.Context, run *durable.Run[LogArgs]) error {
	run.Log().Log(ctx, slog.LevelInfo, "message", "message", run.Args.Message)
	return nil
}
