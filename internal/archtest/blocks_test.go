package archtest_test

import (
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// blocksDir has the source of each block of SQL: db/blocks/NAME.sql. What several statements
// have to say is between "-- block: NAME" and "-- end" in each of them, copied from there by
// `make generate`.
const blocksDir = "db/blocks"

var update = flag.Bool("update", false, "write the blocks of db/blocks into the statements")

var (
	blockBegin = regexp.MustCompile(`^-- block: ([a-z-]+)(?: of (\w+))?$`)
	blockOf    = regexp.MustCompile(`^-- of (\w+)$`)
)

// sqlBlock is the source of a block. Where it reads a CTE, it has one name for it, and a
// statement another ("-- block: NAME of CTE").
type sqlBlock struct {
	cte   string
	lines []string
	times int // how many statements have it
}

// blockSources reads the sources by their names. The comment at the head stays in the source.
func blockSources(t tree) map[string]*sqlBlock {
	sources := map[string]*sqlBlock{}
	for _, file := range t.other {
		if path.Dir(file) != blocksDir || path.Ext(file) != ".sql" {
			continue
		}
		text, err := fs.ReadFile(t.root, file)
		if err != nil {
			continue
		}
		one := &sqlBlock{}
		for line := range strings.Lines(string(text)) {
			line = strings.TrimSuffix(line, "\n")
			if m := blockOf.FindStringSubmatch(line); m != nil {
				one.cte = m[1]
			}
			if !strings.HasPrefix(line, "--") {
				one.lines = append(one.lines, line)
			}
		}
		sources[strings.TrimSuffix(path.Base(file), ".sql")] = one
	}
	return sources
}

// stamped is what a block is in a statement: indented as the copy that is there, which may end
// the statement.
func (b *sqlBlock) stamped(cte string, have []string) []string {
	indent, end := 4, ""
	if len(have) > 0 {
		indent = len(have[0])
		for _, line := range have {
			indent = min(indent, len(line)-len(strings.TrimLeft(line, " ")))
		}
		if strings.HasSuffix(have[len(have)-1], ";") {
			end = ";"
		}
	}
	lines := slices.Clone(b.lines)
	for i := range lines {
		if b.cte != "" {
			lines[i] = regexp.MustCompile(`\b`+b.cte+`\b`).ReplaceAllString(lines[i], cte)
		}
		lines[i] = strings.Repeat(" ", indent) + lines[i]
	}
	if len(lines) > 0 {
		lines[len(lines)-1] += end
	}
	return lines
}

// stamp returns a file of statements with the blocks as their sources have them, and what is
// wrong about the blocks.
func stamp(file, text string, sources map[string]*sqlBlock) (stamped string, findings []string) {
	var out, body []string
	var block *sqlBlock
	var name, cte string
	begin := 0 // the line of the block that has begun; 0: none has
	find := func(line int, format string, args ...any) {
		findings = append(findings, fmt.Sprintf("%s:%d: the block %s ", file, line, name)+fmt.Sprintf(format, args...))
	}
	for i, line := range strings.Split(text, "\n") {
		if m := blockBegin.FindStringSubmatch(line); m != nil {
			if begin > 0 {
				find(begin, "does not end")
			}
			name, cte, body, begin = m[1], m[2], nil, i+1
			if block = sources[name]; block == nil {
				block = &sqlBlock{}
				find(begin, "has no source %s/%s.sql", blocksDir, name)
			} else if (block.cte == "") != (cte == "") {
				find(begin, "and its source have to agree on whether it reads a CTE")
			}
			block.times++
			out = append(out, line)
			continue
		}
		switch {
		case begin > 0 && line == "-- end":
			want := block.stamped(cte, body)
			if !slices.Equal(want, body) {
				find(begin, "differs from its source: change that, then `make generate`")
			}
			out, begin = append(append(out, want...), line), 0
		case begin > 0:
			body = append(body, line)
		default:
			out = append(out, line)
		}
	}
	if begin > 0 {
		find(begin, "does not end")
		return text, findings
	}
	return strings.Join(out, "\n"), findings
}

// unstamped finds blocks that are not those of their sources, and sources that fewer than two
// statements have.
func unstamped(t tree) []string {
	var findings []string
	sources := blockSources(t)
	inQueries(t, func(file, text string) {
		_, wrong := stamp(file, text, sources)
		findings = append(findings, wrong...)
	})
	for name, block := range sources {
		if block.times < 2 {
			findings = append(findings, fmt.Sprintf("%s/%s.sql:1: %d statements have the block, want 2 or more", blocksDir, name, block.times))
		}
	}
	return findings
}

func TestBlocksOfSQLAreThoseOfTheirSources(t *testing.T) {
	if *update {
		stampAll(t)
	}
	holds(t, unstamped)
	finds(t, unstamped, map[string]string{
		"db/blocks/over.sql":   "-- What it says.\n-- of a\nSELECT a.x\nFROM a\n",
		"db/blocks/same.sql":   "-- Same.\nx = 1\n",
		"db/blocks/once.sql":   "once\n",
		"db/blocks/unused.sql": "unused\n",
		"db/queries/a.sql": "-- name: A :exec\n-- block: over of a\n    SELECT a.x\n    FROM a\n-- end\n-- block: once\nonce;\n-- end\n" +
			"-- block: same\nx = 1;\n-- end\n-- block: same\n-- end\n",
		"db/queries/b.sql": "-- block: over of boy\n  SELECT boy.x\n  FROM boy\n-- end\n-- block: over of c\nSELECT c.y\nFROM c\n-- end\n" +
			"-- block: over\n-- block: same of x\nx = 1\n-- end\n-- block: none\n-- end\n-- block: over of d\n",
	}, "db/queries/a.sql:12: the block same differs", "db/blocks/once.sql:1: 1 statements", "db/blocks/unused.sql:1: 0 statements",
		"db/queries/b.sql:5: the block over differs", "db/queries/b.sql:9: the block over and its source", "db/queries/b.sql:9: the block over does not end",
		"db/queries/b.sql:10: the block same and its source", "db/queries/b.sql:13: the block none has no source", "db/queries/b.sql:15: the block over does not end")
}

// stampAll writes the blocks into the statements.
func stampAll(t *testing.T) {
	t.Helper()
	known := house(t)
	sources := blockSources(known)
	inQueries(known, func(file, text string) {
		stamped, _ := stamp(file, text, sources)
		if stamped == text {
			return
		}
		if err := os.WriteFile(filepath.Join("..", "..", filepath.FromSlash(file)), []byte(stamped), 0o600); err != nil {
			t.Fatal(err)
		}
		t.Logf("%s: written", file)
	})
}
