package dashboard

import (
	"bytes"
	"encoding/json"
	"strings"

	"github.com/durable-worker/durable-worker/store"
)

// jsonView is a JSON text on a page, or how large one is that may not be seen.
type jsonView struct {
	Size   string
	Hidden bool // only its size may be seen
	Empty  bool
	Cut    bool // not all of it is shown
	Parts  []jsonPart
	Plain  string // to copy
}

// jsonPart is a piece of a JSON text with what it is: key, text, number, word, or
// empty for the signs between.
type jsonPart struct {
	Kind, Text string
}

// jsonMost bounds how much of a JSON text a page shows.
const jsonMost = 32 << 10

// sizesOf are the sizes of what a person may not see.
func sizesOf(hidden *store.Hidden) store.Hidden {
	if hidden == nil {
		return store.Hidden{}
	}
	return *hidden
}

// jsonOf is a JSON text, or the size of one that a person may not see.
func jsonOf(text json.RawMessage, hidden int) jsonView {
	size := len(text) + hidden
	view := jsonView{Size: bytesText(size), Empty: size == 0, Hidden: hidden > 0}
	if view.Empty || view.Hidden {
		return view
	}
	var pretty bytes.Buffer
	if json.Indent(&pretty, text, "", "  ") != nil {
		pretty.Reset()
		pretty.Write(text)
	}
	view.Plain = pretty.String()
	if len(view.Plain) > jsonMost {
		view.Plain, view.Cut = strings.ToValidUTF8(view.Plain[:jsonMost], ""), true
	}
	view.Parts = jsonParts(view.Plain)
	return view
}

// jsonParts takes a JSON text apart.
func jsonParts(text string) (parts []jsonPart) {
	for len(text) > 0 {
		var n int
		kind := ""
		switch c := text[0]; {
		case c == '"':
			n, kind = stringEnd(text), "text"
			if strings.HasPrefix(strings.TrimLeft(text[n:], " "), ":") {
				kind = "key"
			}
		case c == '-' || c >= '0' && c <= '9':
			n, kind = len(text)-len(strings.TrimLeft(text, "+-0123456789.eE")), "number"
		case c >= 'a' && c <= 'z':
			n, kind = len(text)-len(strings.TrimLeft(text, "abcdefghijklmnopqrstuvwxyz")), "word"
		default:
			if n = strings.IndexFunc(text, func(r rune) bool {
				return r == '"' || r == '-' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z'
			}); n < 0 {
				n = len(text)
			}
		}
		parts = append(parts, jsonPart{kind, text[:n]})
		text = text[n:]
	}
	return parts
}

// stringEnd is where the string at the beginning of a text ends.
func stringEnd(text string) int {
	for i := 1; i < len(text); i++ {
		switch text[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
	return len(text)
}
