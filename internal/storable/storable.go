package storable

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Schema is what a schema's name must match.
var Schema = regexp.MustCompile(`^[a-z_][a-z0-9_]{0,47}$`)

// Clip shortens text to at most n bytes without splitting a character.
func Clip(text string, n int) string {
	if len(text) <= n {
		return text
	}
	for n > 0 && !utf8.RuneStart(text[n]) {
		n--
	}
	return text[:n]
}

// Text makes any text fit for every store: valid UTF-8, no NUL, at most
// size bytes with a mark where it was cut.
func Text(text string, size int) string {
	const mark = " … (cut)"
	long := len(text) > size
	text = Clip(text, size)
	if strings.IndexByte(text, 0) >= 0 {
		text = strings.ReplaceAll(text, "\x00", "\uFFFD")
	}
	if !utf8.ValidString(text) {
		text = strings.ToValidUTF8(text, "\uFFFD")
	}
	if long || len(text) > size { // replacements are longer than what they replace
		text = Clip(text, size-len(mark)) + mark
	}
	return text
}

// IsText reports whether every store can store and search for the text.
func IsText(text string) bool { return utf8.ValidString(text) && strings.IndexByte(text, 0) < 0 }

// HasControl reports whether the text has characters that a terminal may obey, U+0080 to U+009F included.
func HasControl(text string) bool { return strings.ContainsFunc(text, unicode.IsControl) }

// CheckJSON reports what keeps a JSON text from being stored on every engine and
// read back as it was. Its error begins with the path of the offender.
func CheckJSON(text []byte, size, nesting int) error {
	if err := checkShape(text, size, nesting); err != nil {
		return err
	}
	if !json.Valid(text) {
		return errors.New(": not valid JSON")
	}
	return checkContent(text)
}

// CheckWritten is CheckJSON for a text that encoding/json has written.
func CheckWritten(text []byte, size, nesting int) error {
	if err := checkShape(text, size, nesting); err != nil {
		return err
	}
	return checkContent(text)
}

func checkShape(text []byte, size, nesting int) error {
	if len(text) > size {
		return fmt.Errorf(": %d bytes, want at most %d; keep large data elsewhere and pass a reference", len(text), size)
	}
	if depth(text) > nesting {
		return fmt.Errorf(": nested deeper than %d", nesting)
	}
	return nil
}

func checkContent(text []byte) error {
	// encoding/json writes \ufffd, escaped, only where a string was not UTF-8.
	suspicious := !utf8.Valid(text) || bytes.IndexByte(text, '\\') >= 0 && (bytes.Contains(text, []byte(`\u0000`)) ||
		bytes.Contains(text, []byte(`\ufffd`)) || bytes.Contains(text, []byte(`\ud`)) || bytes.Contains(text, []byte(`\uD`)))
	if !suspicious {
		return nil
	}
	return checkStrings(text)
}

// depth returns the deepest nesting of brackets outside strings.
func depth(text []byte) int {
	var now, deepest int
	inString := false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case inString && c == '\\':
			i++
		case c == '"':
			inString = !inString
		case inString:
		case c == '{' || c == '[':
			now++
			deepest = max(deepest, now)
		case c == '}' || c == ']':
			now--
		}
	}
	return deepest
}

// checkStrings walks the strings of a valid JSON text and names the first one
// that holds a NUL, a lone surrogate or bytes that are not UTF-8.
func checkStrings(text []byte) error {
	type level struct {
		key   string
		index int
		array bool
	}
	var path []level
	where := func() string {
		var b strings.Builder
		for _, l := range path {
			if l.array {
				fmt.Fprintf(&b, "[%d]", l.index)
			} else if l.key != "" {
				b.WriteString("." + Clip(l.key, 100))
			}
		}
		return strings.ToValidUTF8(b.String(), "?")
	}
	isKey := func(end int) bool {
		rest := bytes.TrimLeft(text[end:], " \t\r\n")
		return len(path) > 0 && !path[len(path)-1].array && len(rest) > 0 && rest[0] == ':'
	}
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '{':
			path = append(path, level{})
		case '[':
			path = append(path, level{array: true})
		case '}', ']':
			path = path[:len(path)-1]
		case ',':
			path[len(path)-1].index++
		case '"':
			start := i
			for i++; text[i] != '"'; i++ {
				if text[i] == '\\' {
					i++
				}
			}
			token := text[start+1 : i]
			if isKey(i + 1) {
				path[len(path)-1].key = string(token)
			}
			if why := refuseString(token); why != "" {
				return fmt.Errorf("%s: %s", where(), why)
			}
		}
	}
	return nil
}

// refuseString checks the inside of a JSON string as it is written.
func refuseString(token []byte) string {
	if !utf8.Valid(token) {
		return "not valid UTF-8"
	}
	for i := 0; i+1 < len(token); i++ {
		if token[i] != '\\' {
			continue
		}
		i++
		if token[i] != 'u' || i+4 >= len(token) {
			continue
		}
		code := hex4(token[i+1:])
		i += 4
		switch {
		case code == 0:
			return `holds the character NUL (\u0000)`
		case code == 0xFFFD:
			return "not valid UTF-8"
		case code >= 0xDC00 && code <= 0xDFFF:
			return "holds a lone surrogate"
		case code >= 0xD800 && code <= 0xDBFF:
			if i+6 >= len(token) || token[i+1] != '\\' || token[i+2] != 'u' || hex4(token[i+3:])&0xFC00 != 0xDC00 {
				return "holds a lone surrogate"
			}
			i += 6
		}
	}
	return ""
}

func hex4(text []byte) int {
	var code int
	for _, c := range text[:4] {
		code <<= 4
		switch {
		case c >= '0' && c <= '9':
			code |= int(c - '0')
		case c >= 'a' && c <= 'f':
			code |= int(c-'a') + 10
		case c >= 'A' && c <= 'F':
			code |= int(c-'A') + 10
		}
	}
	return code
}

// FindStack returns the part of a dump of all goroutines that holds a frame,
// without a half line at its end.
func FindStack(dump, frame string) string {
	for _, goroutine := range strings.Split(dump, "\n\n") {
		if strings.Contains(goroutine, frame) {
			return goroutine
		}
	}
	return ""
}
