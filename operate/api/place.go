package api

import (
	"errors"
	"strings"

	"github.com/durable-worker/durable-worker/internal/wire"
	"github.com/durable-worker/durable-worker/store"
)

// subjects are the words with which a fault of a run or of a schedule begins, and the member
// of the body that it is about.
var subjects = []struct{ word, member string }{ //nolint:gochecknoglobals // a constant table
	{"id ", "/id"}, {"has the id of run", "/id"}, {"job name", "/job"}, {"args", "/args"}, {"queue name", "/queue"},
	{"at ", "/due_at"}, {"after ", "/after"}, {"expires at ", "/expires_at"}, {"priority ", "/priority"},
	{"max attempts ", "/max_attempts"}, {"timeout ", "/timeout"}, {"tag ", "/tags"}, {"metadata", "/metadata"},
	{"limit ", "/limited_by"}, {"batch ", "/batch"}, {"Unique", "/unique"}, {"Replace", "/replace"}, {"Debounce", "/debounce"},
	{"cron ", "/rule/cron"}, {"every ", "/rule/every"}, {"time zone ", "/rule/zone"}, {"rule ", "/rule"}, {"overlap ", "/plan/overlap"},
	{"catch-up within ", "/plan/catch_up_within"}, {"catch-up of ", "/plan/catch_up_most"}, {"catch-up ", "/plan/catch_up"},
	{"jitter ", "/plan/jitter"}, {"spread ", "/plan/spread"},
}

// placed adds to the faults of what a body says the members that they are about. Errors
// that have a code of their own are left as they are.
func placed(err error) error {
	if !errors.Is(err, store.ErrInvalid) || errors.Is(err, store.ErrUnknownLimit) || errors.Is(err, store.ErrUnknownJob) {
		return err
	}
	faults := wire.FaultsOf(err)
	run := ""
	for i := range faults {
		fault := &faults[i]
		switch {
		case strings.HasPrefix(fault.Detail, "schedule name "):
			fault.Parameter = "name"
			continue
		case fault.Pointer == "":
			fault.Pointer = run // another fault of the run before
		default:
			run = fault.Pointer
		}
		for _, subject := range subjects {
			if strings.HasPrefix(fault.Detail, subject.word) {
				fault.Pointer += subject.member
				break
			}
		}
	}
	return faults
}
