package store

import "fmt"

// Level says how bad a finding is.
type Level int8

// The levels.
const (
	Fine    Level = iota + 1 // nothing to do
	Warning                  // works, and should be looked at
	Failed                   // does not work, or promises are not kept
)

// String returns the level's word: ok, warning or failed.
func (l Level) String() string {
	switch l {
	case Fine:
		return "ok"
	case Warning:
		return "warning"
	case Failed:
		return "failed"
	default:
		return fmt.Sprintf("level(%d)", int8(l))
	}
}

// MarshalText writes the level's word.
func (l Level) MarshalText() ([]byte, error) { return []byte(l.String()), nil }

// Finding is what an examination of a store, or of what surrounds it, has found
// about one thing. It is for people; nothing decides by it, and it never holds
// a secret.
type Finding struct {
	Name  string `json:"name"` // of the thing, in lower case
	Level Level  `json:"level"`
	Text  string `json:"text"` // what was found, on one line
	Hint  string `json:"hint"` // what to do about it; empty when the level is Fine
}

// Findings are collected in the order in which things are examined. The zero
// value is empty.
type Findings []Finding

// Fine adds a finding that needs nothing done.
func (f *Findings) Fine(name, text string) {
	*f = append(*f, Finding{Name: name, Level: Fine, Text: text})
}

// Warn adds a finding to look at.
func (f *Findings) Warn(name, text, hint string) {
	*f = append(*f, Finding{Name: name, Level: Warning, Text: text, Hint: hint})
}

// Fail adds a finding of something that does not work.
func (f *Findings) Fail(name, text, hint string) {
	*f = append(*f, Finding{Name: name, Level: Failed, Text: text, Hint: hint})
}
