package durablecmd

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/durable-worker/durable-worker/durablecmd/builtin"
)

// RegisterJobs gives the program's worker the jobs of the bundled program: http
// and exec, as far as DURABLE_HTTP_JOB_ALLOW and DURABLE_EXEC_ALLOW allow, log
// and sleep, or those of them that DURABLE_BUILTIN_JOBS names. A program of your own has them when its setup calls this, and not
// otherwise. They are closed when the worker has stopped.
func RegisterJobs(app *App) {
	jobs := builtin.New(app.builtin)
	app.OnStop(func(context.Context) error { jobs.Close(); return nil })
	jobs.Register(app.Worker)
}

// builtin is the configuration of the built-in jobs. loadConfig has checked
// the lists. A program is killed well before its handler would be taken for
// stuck.
func (c Config) builtin() builtin.Config {
	origins, _ := builtin.ParseOrigins(c.HTTPJobAllow)
	programs, _ := builtin.ParsePrograms(c.ExecAllow)
	return builtin.Config{
		Names: c.jobs(), HTTPRefusePrivate: c.HTTPRefusePrivate, HTTPAllow: origins, ExecAllow: programs, HTTPHint: varHTTPAllow, ExecHint: varExecAllow,
		ExecGrace: max(c.CancelGrace*3/5, time.Nanosecond),
	}
}

// jobs are the names of DURABLE_BUILTIN_JOBS, without blanks.
func (c Config) jobs() []string { return listed(c.BuiltinJobs) }

func builtinVariables() []variable {
	return []variable{
		{name: "DURABLE_BUILTIN_JOBS", standard: "http,exec,log,sleep", unit: "names", constraint: "names separated by commas, each once, of http, exec, log and sleep",
			show: func(c Config) string { return strings.Join(c.jobs(), ",") },
			valid: func(c Config) bool {
				seen := map[string]bool{}
				return !slices.ContainsFunc(c.jobs(), func(name string) bool {
					twice := seen[name]
					seen[name] = true
					return twice || !slices.Contains(builtin.Names(), name)
				})
			}},
		{name: "DURABLE_HTTP_JOB_REFUSE_PRIVATE", standard: "false", unit: "switch", constraint: "true or false; true: host names that resolve to private addresses are refused",
			show: func(c Config) string { return strconv.FormatBool(c.HTTPRefusePrivate) }},
		{name: varHTTPAllow, standard: "none", unit: "URLs",
			constraint: "URLs separated by commas; the job http may send requests to them and to all paths below: https://api.example.com/hooks,http://10.0.0.7:8080",
			show:       func(c Config) string { return c.builtin().HTTPAllow.String() },
			valid:      func(c Config) bool { _, err := builtin.ParseOrigins(c.HTTPJobAllow); return err == nil },
			why:        func(c Config) string { _, err := builtin.ParseOrigins(c.HTTPJobAllow); return err.Error() }},
		{name: varExecAllow, standard: "none", unit: "programs",
			constraint: "programs separated by commas that the job exec may start, each an absolute path or name=path: report=/usr/local/bin/report,/bin/true",
			show:       func(c Config) string { return c.builtin().ExecAllow.String() },
			valid:      func(c Config) bool { _, err := builtin.ParsePrograms(c.ExecAllow); return err == nil },
			why:        func(c Config) string { _, err := builtin.ParsePrograms(c.ExecAllow); return err.Error() }},
	}
}
