package presence

import (
	"runtime/debug"
	"slices"
	"strings"
	"unicode"

	"github.com/durable-worker/durable-worker/internal/storable"
	"github.com/durable-worker/durable-worker/store"
)

// Named is a presence that serves jobs on queues, sorted, up to the most that a store
// takes.
func Named(queues, jobs []string) store.Presence {
	p := store.Presence{Queues: slices.Clone(queues), Jobs: slices.Clone(jobs)}
	for _, names := range []*[]string{&p.Queues, &p.Jobs} {
		slices.Sort(*names)
		*names = slices.Compact(*names)
		if len(*names) > store.MaxReportNames {
			*names, p.More = (*names)[:store.MaxReportNames], true
		}
	}
	return p
}

// Version is what identifies the program: as its owner says, or else the version of its
// main module and the revision that it was built from.
func Version(given string) string {
	if info, ok := debug.ReadBuildInfo(); ok && given == "" {
		given = built(info)
	}
	given = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return -1
		}
		return r
	}, strings.ToValidUTF8(given, ""))
	if len(given) > store.MaxVersion {
		given = storable.Clip(given, store.MaxVersion)
	}
	return given
}

func built(info *debug.BuildInfo) string {
	var parts []string
	if v := info.Main.Version; v != "" && v != "(devel)" {
		parts = append(parts, v)
	}
	settings := map[string]string{}
	for _, s := range info.Settings {
		settings[s.Key] = s.Value
	}
	if revision := settings["vcs.revision"]; revision != "" {
		revision = revision[:min(len(revision), 12)]
		if settings["vcs.modified"] == "true" {
			revision += "+changes"
		}
		if len(parts) == 0 || !strings.Contains(parts[0], revision[:min(len(revision), 12)]) {
			parts = append(parts, revision)
		}
	}
	return strings.Join(parts, " ")
}
