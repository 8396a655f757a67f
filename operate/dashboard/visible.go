package dashboard

import (
	"fmt"
	"unicode"
	"unicode/utf8"
)

// visible returns a page in which what people cannot see, and what may change the
// order in which they read, is written as \u…: control characters, format characters
// such as direction marks, and line separators. Within tags it is written as a
// reference, so that values of forms stay what they are. Bytes that are not UTF-8
// become U+FFFD. The templates have none of these themselves.
func visible(page []byte) []byte {
	out := make([]byte, 0, len(page)+256)
	inTag := false
	for rest := page; len(rest) > 0; {
		plain := 0
		for plain < len(rest) && isPlain(rest[plain]) {
			plain++
		}
		if out, rest = append(out, rest[:plain]...), rest[plain:]; len(rest) == 0 {
			break
		}
		r, size := utf8.DecodeRune(rest)
		switch {
		case r == utf8.RuneError && size == 1:
			out = append(out, "\ufffd"...)
		case r == '<' || r == '>':
			inTag = r == '<'
			out = append(out, rest[:size]...)
		case !hidden(r):
			out = append(out, rest[:size]...)
		case inTag:
			out = fmt.Appendf(out, "&#x%x;", r)
		case r > 0xffff:
			out = fmt.Appendf(out, `\U%08x`, r)
		default:
			out = fmt.Appendf(out, `\u%04x`, r)
		}
		rest = rest[size:]
	}
	return out
}

// isPlain reports whether a byte is a character of ASCII that people see, and that neither
// begins nor ends a tag: nearly all of a page.
func isPlain(b byte) bool { return b >= ' ' && b < 0x7f && b != '<' && b != '>' }

// hidden reports whether a character is one that people cannot see.
func hidden(r rune) bool {
	switch {
	case r == '\n' || r == '\t':
		return false
	case r < 0x20 || r == 0x7f:
		return true
	case r < 0x80:
		return false
	default:
		return unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp, unicode.Co, unicode.Cs)
	}
}
