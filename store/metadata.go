package store

import (
	"encoding/json"
	"errors"
	"fmt"
	"unicode/utf8"

	"github.com/durable-worker/durable-worker/internal/storable"
)

// MaxMetadataSize bounds the names and values of a run's metadata together, in bytes.
const MaxMetadataSize = 4 << 10

// Metadata is what the code that enqueues a run notes about it beside its args: a
// tenant, a request, a version. Handlers, middleware and hooks read it, and lists
// can be narrowed by it. It is stored as it is, without a codec. Names and values
// are text of at most MaxMetadataSize bytes together; a name has 1 to MaxNameLength
// bytes without control characters and without "=", a value no NUL.
type Metadata map[string]string

// Check reports what is wrong with the metadata.
func (m Metadata) Check() error {
	size := 0
	for name, value := range m {
		size += len(name) + len(value)
		if !metadataName(name) {
			return fmt.Errorf("metadata name %q: want 1 to %d bytes of text without \"=\" and control characters", storable.Clip(name, 150), MaxNameLength)
		}
		if !storable.IsText(value) {
			return fmt.Errorf("metadata %s: value %q: want text without NUL", name, storable.Clip(value, 150))
		}
	}
	if size > MaxMetadataSize {
		return fmt.Errorf("metadata: %d bytes, want at most %d", size, MaxMetadataSize)
	}
	return nil
}

func metadataName(name string) bool {
	for i := range len(name) {
		if name[i] == '=' {
			return false
		}
	}
	return name != "" && len(name) <= MaxNameLength && utf8.ValidString(name) && !storable.HasControl(name)
}

// Text is the metadata as stores keep it, a JSON object; nil: there is none.
func (m Metadata) Text() *string {
	if len(m) == 0 {
		return nil
	}
	text, _ := json.Marshal(m) // a map of texts always has a form
	stored := string(text)
	return &stored
}

// MetadataOf reads what Text has written. What cannot be read, which only a change
// by hand can leave, is no metadata: a run is executed without it.
func MetadataOf(text []byte) Metadata {
	var m Metadata
	if len(text) == 0 || json.Unmarshal(text, &m) != nil || len(m) == 0 {
		return nil
	}
	return m
}

// ParseMetadata reads one "name=value", as the commands take it.
func ParseMetadata(text string) (name, value string, err error) {
	for i := range len(text) {
		if text[i] == '=' {
			name, value = text[:i], text[i+1:]
			return name, value, Metadata{name: value}.Check()
		}
	}
	return "", "", errors.New("want name=value")
}
