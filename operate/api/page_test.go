package api_test

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// command is a curl of a page.
type command struct {
	method, target, body string
	headers              []string
}

// curls are the commands of a page that call curl, one a line, with the shell's quotes
// and variables resolved.
func curls(t *testing.T, path string, variables *strings.Replacer) (all []command) {
	t.Helper()
	page, err := os.ReadFile(path)
	require.NoError(t, err)
	for line := range strings.Lines(string(page)) {
		text, is := strings.CutPrefix(strings.TrimSpace(line), "curl ")
		if !is {
			continue
		}
		c := command{method: "GET"}
		for words := shellWords(text); len(words) > 0; words = words[1:] {
			switch word := words[0]; word {
			case "-X", "-d", "-H":
				words = words[1:]
				switch word {
				case "-X":
					c.method = words[0]
				case "-d":
					c.body = words[0]
				default:
					name, value, _ := strings.Cut(words[0], ": ")
					c.headers = append(c.headers, name, variables.Replace(value))
				}
			default:
				require.Empty(t, c.target, line)
				c.target = variables.Replace(word)
			}
		}
		all = append(all, c)
	}
	return all
}

// shellWords splits a line as a shell does that knows single and double quotes.
func shellWords(text string) (words []string) {
	var word strings.Builder
	var quote rune
	for _, r := range text + " " {
		switch {
		case quote != 0 && r == quote:
			quote = 0
		case quote == 0 && (r == '\'' || r == '"'):
			quote = r
		case quote == 0 && r == ' ':
			if word.Len() > 0 {
				words = append(words, word.String())
			}
			word.Reset()
		default:
			word.WriteRune(r)
		}
	}
	return words
}

// TestTheExamplesOfThePageWork sends what docs/api.md shows, in its order.
func TestTheExamplesOfThePageWork(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.token = ""
	id := ""
	const page = "../../docs/api.md"
	n := len(curls(t, page, strings.NewReplacer()))
	require.Greater(t, n, 20)
	for i := range n {
		c := curls(t, page, strings.NewReplacer("$API", "", "$TOKEN", operatorToken, "$ID", id))[i]
		w := b.send(c.method, c.target, c.body, c.headers...)
		require.Less(t, w.Code, 300, "%s %s %s: %s", c.method, c.target, c.body, w.Body)
		var answer map[string]any
		require.NoError(t, json.Unmarshal(w.Body.Bytes(), &answer))
		if made, ok := answer["id"].(string); ok && id == "" {
			id = made
		}
	}
}
