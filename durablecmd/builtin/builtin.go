package builtin

import (
	"context"
	"net/http"
	"slices"
	"time"

	"github.com/durable-worker/durable-worker/durable"
)

// The names of the jobs.
const (
	NameHTTP  = "http"
	NameExec  = "exec"
	NameLog   = "log"
	NameSleep = "sleep"
)

// Config says what the jobs may do. The zero value allows neither http nor exec.
type Config struct {
	// HTTPAllow lists where the job http may post to. Default: nowhere.
	HTTPAllow Origins
	// HTTPRefusePrivate refuses names that lead into a private network
	// (10.0.0.0/8, 172.16.0.0/12, 192.168.0.0/16, 100.64.0.0/10, fc00::/7),
	// unless the list says the address itself. Default: they may.
	HTTPRefusePrivate bool
	// ExecAllow lists what the job exec may start. Default: nothing.
	ExecAllow Programs
	// ExecGrace is how long a program may continue after SIGTERM before it is
	// killed. Below the worker's CancelGrace, else the worker takes the handler
	// for stuck. Default 3 s; a negative value: it is killed immediately.
	ExecGrace time.Duration
	// Names are the jobs that Register gives a worker. Default: all four.
	Names []string
	// Trace sets the headers traceparent and tracestate for the span of a handler's
	// context: tracing.Inject does. The jobs http and exec pass them on. Default: what
	// they pass on is the Trace of the run, or else the run's id as the trace.
	Trace func(ctx context.Context, header http.Header)
	// HTTPHint and ExecHint say in a refusal where the list is written, such as
	// the name of an environment variable. Default: the field of this struct.
	HTTPHint, ExecHint string
}

// Jobs are the handlers of the built-in jobs. Make them with New and Close
// them when the worker has stopped.
type Jobs struct {
	config Config
	client *http.Client
}

// New makes the handlers. It connects to nothing.
func New(config Config) *Jobs {
	if config.ExecGrace == 0 {
		config.ExecGrace = 3 * time.Second
	}
	if config.HTTPHint == "" {
		config.HTTPHint = "HTTPAllow"
	}
	if config.ExecHint == "" {
		config.ExecHint = "ExecAllow"
	}
	if config.Names == nil {
		config.Names = Names()
	}
	return &Jobs{config: config, client: newClient(gate{config.HTTPRefusePrivate})}
}

// Register gives a worker the jobs of Config.Names, also those that nothing is
// allowed to: a run of them is refused with the reason instead of waiting. Runs
// of a job that is not among the names wait for a worker that has it.
func (j *Jobs) Register(worker *durable.Worker) {
	has := func(name string) bool { return slices.Contains(j.config.Names, name) }
	if has(NameHTTP) {
		durable.Register(worker, HTTP(), j.post)
	}
	if has(NameExec) {
		durable.Register(worker, Exec(), j.exec)
	}
	if has(NameLog) {
		durable.Register(worker, Log(), logLine)
	}
	if has(NameSleep) {
		durable.Register(worker, Sleep(), sleep)
	}
}

// Names are the names of the jobs there are. The caller owns them.
func Names() []string { return []string{NameHTTP, NameExec, NameLog, NameSleep} }

// Close gives up the connections that are kept for the next request.
func (j *Jobs) Close() { j.client.CloseIdleConnections() }

// Infos describes the jobs, for those who enqueue before a worker has declared
// them.
func Infos() []durable.JobInfo {
	return []durable.JobInfo{HTTP().Info(), Exec().Info(), Log().Info(), Sleep().Info()}
}
