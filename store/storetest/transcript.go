package storetest

import (
	"embed"
	"fmt"
	"io/fs"
	"strings"
	"testing"
)

//go:embed testdata/*.txt
var transcripts embed.FS

func testTranscripts(t *testing.T, backend Backend) {
	t.Parallel()
	entries, err := fs.ReadDir(transcripts, "testdata")
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		t.Run(strings.TrimSuffix(entry.Name(), ".txt"), func(t *testing.T) {
			t.Parallel()
			text, err := fs.ReadFile(transcripts, "testdata/"+entry.Name())
			if err != nil {
				t.Fatal(err)
			}
			compare(t, entry.Name(), string(text), play(newFixture(t, backend), string(text)))
		})
	}
}

// compare reports every line at which the store's answer differs.
func compare(t *testing.T, name, want, got string) {
	t.Helper()
	if want == got {
		return
	}
	wants, gots := strings.Split(want, "\n"), strings.Split(got, "\n")
	for i := range min(len(wants), len(gots)) {
		if wants[i] != gots[i] {
			t.Errorf("%s:%d: the store answers differently\nwant: %s\n got: %s\nthe whole of it:\n%s", name, i+1, wants[i], gots[i], got)
			return
		}
	}
	t.Errorf("%s: the transcript has another length:\n%s", name, got)
}

// play executes the commands of a transcript and returns it with the outputs
// of this store in place of those in the text.
func play(f *fixture, text string) string {
	f.t.Helper()
	p := newPlayer(f)
	var out strings.Builder
	var block []command
	lines := strings.SplitAfter(text, "\n")
	for i := 0; i < len(lines); i++ {
		line := lines[i]
		out.WriteString(line)
		switch {
		case strings.TrimSpace(line) == "" || line[0] == '#':
		case strings.TrimSpace(line) != "----":
			c, err := parse(strings.TrimSpace(line))
			if err != nil {
				f.t.Fatalf("line %d: %v", i+1, err)
			}
			if strings.HasPrefix(line, " ") && len(block) > 0 {
				last := &block[len(block)-1]
				last.more = append(last.more, c)
			} else {
				block = append(block, c)
			}
		default:
			for _, c := range block {
				if err := p.do(c); err != nil {
					f.t.Fatalf("line %d: %s: %v", i+1, c.words[0], err)
				}
			}
			out.WriteString(p.out.String())
			p.out.Reset()
			block = nil
			for i+1 < len(lines) && strings.TrimSpace(lines[i+1]) != "" {
				i++ // the output that the text expects
			}
		}
	}
	return out.String()
}

// command is one line: words, and options written key=value, where a value
// with spaces is in "quotes" or `backquotes`.
type command struct {
	words   []string
	options map[string][]string
	more    []command // the indented lines below it
}

func parse(line string) (command, error) {
	c := command{options: map[string][]string{}}
	for line != "" {
		var word string
		end := strings.IndexAny(line, " \"`")
		switch {
		case end < 0:
			word, line = line, ""
		case line[end] == ' ':
			word, line = line[:end], line[end:]
		default:
			quoted, rest, closed := strings.Cut(line[end+1:], line[end:end+1])
			if !closed {
				return c, fmt.Errorf("a quote is not closed: %s", line)
			}
			word, line = line[:end]+quoted, rest
		}
		if key, value, option := strings.Cut(word, "="); option {
			c.options[key] = append(c.options[key], value)
		} else {
			c.words = append(c.words, word)
		}
		line = strings.TrimLeft(line, " ")
	}
	if len(c.words) == 0 {
		return c, fmt.Errorf("no command in %v", c.options)
	}
	return c, nil
}
