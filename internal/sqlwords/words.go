// Package sqlwords replaces the words that SQL statements use for numbers, letters and bits
// by what they mean. A word is declared as a SQL function of one expression, so
// that sqlc and people with psql read the statements as they are written, and the server gets
// none of it: it plans the same text as if the number had been written.
package sqlwords

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// Words are the words of one file, by their names as statements write them.
type Words map[string]Word

// Word is a function of one expression.
type Word struct {
	Params []string
	Body   string // a literal, or an expression in brackets
	parts  []part // the body, cut at its parameters
}

// part is a piece of a body: text, and after it a parameter, or none.
type part struct {
	text  string
	param int // -1: none
}

var (
	comments    = regexp.MustCompile(`--[^\n]*`)
	declaration = regexp.MustCompile(`(?s)^create function ([a-z_.]+)\(([^()]*)\)\s+returns \w+\s+language sql (?:immutable|stable) return (.+)$`)
	literal     = regexp.MustCompile(`^(\d+|'[^']*')$`)
	cast        = regexp.MustCompile(`^::\w+$`)
	identifier  = regexp.MustCompile(`[A-Za-z_][A-Za-z_0-9]*`)
	// primary is an argument that needs no brackets.
	primary = regexp.MustCompile(`^[\w$.]+(\([^()]*\))?(\[[^\[\]]*\])?(::\w+)*$`)
)

// Parse reads a file of words. Each is declared as
//
//	create function NAME(PARAMETER TYPE, …) returns TYPE language sql immutable return BODY;
//
// where the body is a literal, or begins with a bracket that its end closes, but for a cast,
// so that it means the same wherever it is put. It may be stable instead of immutable, and have
// the words above it in its body. A parameter is named as no column is that the body reads.
func Parse(file string) (Words, error) {
	words := Words{}
	for statement := range strings.SplitSeq(comments.ReplaceAllString(file, ""), ";") {
		statement = strings.TrimSpace(statement)
		if statement == "" {
			continue
		}
		found := declaration.FindStringSubmatch(statement)
		if found == nil {
			return nil, fmt.Errorf("not a word: %s", statement)
		}
		name, body := found[1], words.SpellOut(found[3])
		if !literal.MatchString(body) && !closed(body) {
			return nil, fmt.Errorf("%s: %s: want a literal, or an expression in brackets", name, body)
		}
		if _, known := words[name]; known {
			return nil, fmt.Errorf("%s: declared twice", name)
		}
		words[name] = newWord(found[2], body)
	}
	return words, nil
}

// closed reports whether the first character is a bracket that is closed at the end, with
// nothing but a cast after it.
func closed(body string) bool {
	if !strings.HasPrefix(body, "(") {
		return false
	}
	_, length, whole := arguments(body)
	return whole && (length == len(body) || cast.MatchString(body[length:]))
}

func newWord(params, body string) Word {
	w := Word{Body: body}
	for param := range strings.SplitSeq(params, ",") {
		if name, _, declared := strings.Cut(strings.TrimSpace(param), " "); declared {
			w.Params = append(w.Params, name)
		}
	}
	from := 0
	for _, at := range identifier.FindAllStringIndex(body, -1) {
		if i := slices.Index(w.Params, body[at[0]:at[1]]); i >= 0 && !strings.HasSuffix(body[:at[0]], ".") {
			w.parts = append(w.parts, part{body[from:at[0]], i})
			from = at[1]
		}
	}
	w.parts = append(w.parts, part{body[from:], -1})
	return w
}

// SpellOut returns the statement with every word replaced. A word with another number of
// arguments than it has parameters is left, for the server to refuse.
func (w Words) SpellOut(statement string) string {
	var out strings.Builder
	from, at := 0, 0 // what is written already, and what is read
	for at < len(statement) {
		begin := at
		at = tokenEnd(statement, begin)
		if at == len(statement) || statement[at] != '(' || !named(statement[begin]) {
			continue
		}
		word, known := w[statement[begin:at]]
		if !known {
			continue
		}
		args, length, whole := arguments(statement[at:])
		if !whole || len(args) != len(word.Params) {
			continue
		}
		out.WriteString(statement[from:begin])
		w.write(&out, word, args)
		at += length
		from = at
	}
	out.WriteString(statement[from:])
	return out.String()
}

// tokenEnd is where the token ends that begins at an index: a name with what qualifies it, a
// string, a comment, or one other character.
func tokenEnd(text string, at int) int {
	end := at + 1
	switch c := text[at]; {
	case c == '\'':
		return end + through(text[end:], "'")
	case c == '-' && strings.HasPrefix(text[end:], "-"):
		return end + through(text[end:], "\n")
	case !named(c):
		return end
	}
	for end < len(text) && named(text[end]) {
		end++
	}
	return end
}

// through is the length of a text up to the end of the first mark in it, or to its own.
func through(text, mark string) int {
	before, _, found := strings.Cut(text, mark)
	if !found {
		return len(text)
	}
	return len(before) + len(mark)
}

func named(c byte) bool {
	return c == '_' || c == '.' || '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
}

// write writes the body of a word with its arguments, in which there may be words too.
func (w Words) write(out *strings.Builder, word Word, args []string) {
	for _, p := range word.parts {
		out.WriteString(p.text)
		if p.param < 0 {
			continue
		}
		arg := w.SpellOut(args[p.param])
		if !primary.MatchString(arg) {
			arg = "(" + arg + ")"
		}
		out.WriteString(arg)
	}
}

// arguments are those in the brackets that a text begins with, and the length of all that with
// the brackets. It is not whole if they are not closed.
func arguments(text string) (args []string, length int, whole bool) {
	depth, from, quoted := 0, 1, false
	for i, c := range []byte(text) {
		switch {
		case c == '\'':
			quoted = !quoted
		case quoted:
		case c == '(' || c == '[':
			depth++
		case c == ',' && depth == 1:
			args, from = append(args, strings.TrimSpace(text[from:i])), i+1
		case c == ')' || c == ']':
			depth--
			if depth == 0 {
				if last := strings.TrimSpace(text[from:i]); last != "" {
					args = append(args, last)
				}
				return args, i + 1, true
			}
		}
	}
	return nil, 0, false
}
