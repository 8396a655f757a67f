package durablecmd

import (
	"errors"
	"maps"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/durable-worker/durable-worker/store"
)

// errEmptyFlag refuses a flag that was given an empty value. Left to mean "any",
// a variable that a shell script forgot to set would make a bulk verb change
// everything there is.
var errEmptyFlag = errors.New("must not be empty: omit the flag, or give it a value")

// word is the value of a flag that must say something when it is given.
type word string

// Decode reads the value.
func (w *word) Decode(ctx *kong.DecodeContext) error {
	var text string
	if err := ctx.Scan.PopValueInto("text", &text); err != nil {
		return err
	}
	if strings.TrimSpace(text) == "" {
		return errEmptyFlag
	}
	*w = word(text)
	return nil
}

// words are the values of a flag that may be repeated, or hold several
// separated by commas. None of them is empty.
type words []string

// Decode reads one occurrence of the flag.
func (w *words) Decode(ctx *kong.DecodeContext) error {
	var text word
	if err := text.Decode(ctx); err != nil {
		return err
	}
	for part := range strings.SplitSeq(string(text), ",") {
		if part = strings.TrimSpace(part); part == "" {
			return errEmptyFlag
		}
		*w = append(*w, part)
	}
	return nil
}

// metaFlag is metadata, a name=value at a time.
type metaFlag store.Metadata

// Decode reads one occurrence of the flag.
func (m *metaFlag) Decode(ctx *kong.DecodeContext) error {
	var text word
	if err := text.Decode(ctx); err != nil {
		return err
	}
	name, value, err := store.ParseMetadata(string(text))
	if err != nil {
		return err
	}
	if *m == nil {
		*m = metaFlag{}
	}
	(*m)[name] = value
	return nil
}

// metaEdit is metadata that takes the place of what is there; none removes it.
type metaEdit store.Metadata

// Decode reads one occurrence of the flag.
func (m *metaEdit) Decode(ctx *kong.DecodeContext) error {
	if ctx.Scan.Peek().String() == "none" {
		ctx.Scan.Pop()
		*m = metaEdit{}
		return nil
	}
	var more metaFlag
	if err := more.Decode(ctx); err != nil {
		return err
	}
	if *m == nil {
		*m = metaEdit{}
	}
	maps.Copy(*m, more)
	return nil
}
