package durablecmd

import (
	"cmp"
	"fmt"
	"runtime"
	"runtime/debug"
)

// versionVerb is the command version.
type versionVerb struct {
	JSON bool `name:"json" help:"Print JSON."`
}

// built is what version prints.
type built struct {
	Version  string `json:"version"`
	Revision string `json:"revision,omitempty"` // of the sources; empty: it was built without
	Modified bool   `json:"modified,omitempty"` // the sources differed from the revision
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

// Run prints the version. It needs no database.
func (v versionVerb) Run(p *program) error {
	b := built{Version: p.seams.versionOf(), Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, setting := range info.Settings {
			switch setting.Key {
			case "vcs.revision":
				b.Revision = setting.Value
			case "vcs.modified":
				b.Modified = setting.Value == "true"
			}
		}
	}
	if v.JSON {
		return p.printJSON(b)
	}
	revision := ""
	if b.Revision != "" {
		revision = ", revision " + b.Revision
		if b.Modified {
			revision += " with changes"
		}
	}
	_, err := fmt.Fprintf(p.stdout, "%s %s (%s, %s%s)\n", p.name, printable(b.Version), b.Go, b.Platform, revision)
	return err
}

// versionOf is the program's version: its own, or that of its main module.
func (s seams) versionOf() string {
	module := ""
	if info, ok := debug.ReadBuildInfo(); ok {
		module = info.Main.Version
	}
	return cmp.Or(s.version, module, "(unknown)")
}
