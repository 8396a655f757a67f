package cron

import "time"

// CompileIn compiles with zone data of the test's choice.
func CompileIn(spec Spec, zone *time.Location) (Rule, error) { return compileIn(spec, zone) }
