package archtest_test

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
)

// plainer are the words that pages do without, each with what the field says.
var plainer = map[string]string{
	"somebody": "name who it is", "whoever": "name who it is", "nobody": "no worker, no process, none", "told": "notified, asked, says",
	"heard of": "seen, reported", "hears of": "notices", "at once": "immediately, or concurrently", "for ever": "forever", "own clock": "monotonic time",
	"stands": "is, stays", "law": "constraint", "laws": "constraints", "door": "name the interface", "doors": "name the interfaces", "anew": "again",
	"save": "except", "made": "created",
}

// idioms are what the plain words may be part of.
var idioms = regexp.MustCompile(`(?i)\bmay be made to\b`)

var plainWords = func() *regexp.Regexp {
	words := make([]string, 0, len(plainer))
	for word := range plainer {
		words = append(words, strings.ReplaceAll(word, " ", `\s+`))
	}
	return regexp.MustCompile(`(?i)\b(?:` + strings.Join(words, "|") + `)\b`)
}()

// plainEnglish finds words in the prose of pages that have a plainer one. Code,
// links and the pages of decisions, which are history, are left out.
func plainEnglish(t tree) []string {
	var findings []string
	for name, text := range prose(t) {
		if strings.HasPrefix(name, "docs/decisions/") {
			continue
		}
		blank := func(s string) string { return regexp.MustCompile(`[^\n]`).ReplaceAllString(s, " ") }
		text = idioms.ReplaceAllStringFunc(code.ReplaceAllStringFunc(text, blank), blank)
		for _, m := range plainWords.FindAllStringIndex(text, -1) {
			word := strings.Join(strings.Fields(strings.ToLower(text[m[0]:m[1]])), " ")
			findings = append(findings, fmt.Sprintf("%s:%d: %q: better %s", name, lineOf(text, m[0]), word, plainer[word]))
		}
	}
	return findings
}

func TestPagesAreInPlainEnglish(t *testing.T) {
	holds(t, plainEnglish)
	finds(t, plainEnglish, map[string]string{
		"docs/a.md":              "Whoever asks is `told`, at\nonce. The lawn, a made-up word, standstill.\n",
		"docs/decisions/0001.md": "Nobody.\n",
	}, "docs/a.md:1: \"at once\"", "docs/a.md:1: \"whoever\"", "docs/a.md:2: \"made\"")
}
