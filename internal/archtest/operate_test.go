package archtest_test

import (
	"strconv"
	"testing"
)

// storeKnown are the files of the program that may know a store. The verbs do
// their work through package operate, as an API or pages do.
var storeKnown = excuses{
	"durablecmd/connect.go":     "opens the store and gives verbs an operator",
	"durablecmd/migrate.go":     "the schema belongs to the owner of the store",
	"durablecmd/work.go":        "the worker",
	"durablecmd/dashboard.go":   "opens the store that the dashboard shows, and gives it an operator",
	"durablecmd/demo.go":        "opens a store and runs a worker",
	"durablecmd/show_config.go": "checks registrations against a store in memory",
	"durablecmd/doctor.go":      "opens the store, and examines where it is",
	"durablecmd/failure.go":     "names the errors of a store that cannot be reached",
	"durablecmd/variable.go":    "shows addresses of stores without passwords",
}

func storeRule(e excuses) rule {
	return func(t tree) []string {
		var program []*source
		for _, f := range t.production() {
			if f.dir == "durablecmd" {
				program = append(program, f)
			}
		}
		return judge(program, e, func(f *source) (findings []string) {
			for _, spec := range f.syntax.Imports {
				if name, _ := strconv.Unquote(spec.Path.Value); name == module+"/store/backend" {
					findings = append(findings, f.finding(spec, "a verb must not know the store: use package operate"))
				}
			}
			return findings
		})
	}
}

func TestVerbsUseTheOperator(t *testing.T) {
	holds(t, storeRule(storeKnown))
	known := "package durablecmd\nimport _ \"" + module + "/store/backend\"\n"
	finds(t, storeRule(excuses{"durablecmd/connect.go": "opens", "durablecmd/gone.go": "stale"}), map[string]string{
		"durablecmd/connect.go": known, "durablecmd/runs.go": known, "durablecmd/runs_test.go": known, "operate/runs.go": "package operate\n",
	}, "durablecmd/runs.go:2: a verb must not know the store", "durablecmd/gone.go: this exception excuses nothing")
}
