package store

import "fmt"

// CrashPolicy says what happens to a run whose worker dies while executing it.
type CrashPolicy int16

const (
	// CrashRetry executes the run again, alone on a worker from the second
	// crash on, until it has crashed MaxCrashes workers.
	CrashRetry CrashPolicy = 0
	// CrashDead ends the run in dead immediately, for work that must not begin
	// twice before a person has checked it.
	CrashDead CrashPolicy = 1
)

// String returns the policy's word.
func (c CrashPolicy) String() string {
	words := [...]string{CrashRetry: "retry", CrashDead: "dead"}
	if c < 0 || int(c) >= len(words) {
		return fmt.Sprintf("crash policy(%d)", int16(c))
	}
	return words[c]
}

// MarshalText writes the policy's word.
func (c CrashPolicy) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// UnmarshalText reads the policy's word.
func (c *CrashPolicy) UnmarshalText(text []byte) error {
	switch string(text) {
	case "retry":
		*c = CrashRetry
	case "dead":
		*c = CrashDead
	default:
		return fmt.Errorf("%q is not a crash policy (retry, dead)", text)
	}
	return nil
}
