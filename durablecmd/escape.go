package durablecmd

import (
	"encoding/json"
	"fmt"
	"io"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// plainJSON writes JSON on, and as \u… what a terminal may obey and people do
// not see: control characters, those from U+0080 to U+009F among them, and
// format characters such as direction marks. The JSON means the same. Bytes
// that are not UTF-8 become \ufffd. Each Write has whole characters.
type plainJSON struct{ io.Writer }

// Write writes one text.
func (w plainJSON) Write(text []byte) (int, error) {
	if _, err := w.Writer.Write(escapedJSON(text)); err != nil {
		return 0, err
	}
	return len(text), nil
}

func escapedJSON(text []byte) []byte {
	out := make([]byte, 0, len(text))
	for rest := text; len(rest) > 0; {
		r, size := utf8.DecodeRune(rest)
		switch {
		case r == utf8.RuneError && size == 1:
			out = append(out, `\ufffd`...)
		case r < 0x7f || !unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp):
			out = append(out, rest[:size]...)
		case r > 0xffff:
			high, low := utf16.EncodeRune(r)
			out = fmt.Appendf(out, `\u%04x\u%04x`, high, low)
		default:
			out = fmt.Appendf(out, `\u%04x`, r)
		}
		rest = rest[size:]
	}
	return out
}

// newEncoder makes an encoder that writes for people and terminals.
func newEncoder(w io.Writer) *json.Encoder {
	encoder := json.NewEncoder(plainJSON{w})
	encoder.SetEscapeHTML(false)
	return encoder
}
