package durablecmd_test

import (
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// commandLine is a line of code that calls the program, or one built like it.
var commandLine = regexp.MustCompile(`^(?:\$ )?(?:[A-Z_]+=\S+ )*(?:durable-worker|bin/worker|go run \./(?:examples/worker|cmd/durable-worker))(?: (.*))?$`)

// called is a command as a page names it.
type called struct {
	page, line string
	args       []string
}

// pages reads every Markdown file of the repository.
func pages(t *testing.T) map[string]string {
	t.Helper()
	texts, root := map[string]string{}, os.DirFS("..")
	require.NoError(t, fs.WalkDir(root, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() && name != "." && strings.HasPrefix(d.Name(), ".") {
			return fs.SkipDir
		}
		if path.Ext(name) != ".md" {
			return nil
		}
		text, err := fs.ReadFile(root, name)
		texts[name] = string(text)
		return err
	}))
	return texts
}

// callsOf finds the commands of a page: lines of code blocks, and code in the
// text that begins with the program's name or with a group of its commands.
func callsOf(page, text string, groups []string) (found []called) {
	add := func(line, args string) {
		args, _, _ = strings.Cut(quoted.ReplaceAllString(args, "''"), " # ")
		if fields := strings.Fields(args); len(fields) > 0 {
			found = append(found, called{page, line, fields})
		}
	}
	fenced := regexp.MustCompile("(?s)```.*?```")
	for _, block := range fenced.FindAllString(text, -1) {
		for line := range strings.Lines(block) {
			if m := commandLine.FindStringSubmatch(strings.TrimSpace(line)); m != nil {
				add(line, m[1])
			}
		}
	}
	for _, m := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(fenced.ReplaceAllString(text, ""), -1) {
		line := strings.Join(strings.Fields(m[1]), " ")
		if call := commandLine.FindStringSubmatch(line); call != nil {
			add(line, call[1])
		} else if first, _, more := strings.Cut(line, " "); more && slices.Contains(groups, first) {
			add(line, line)
		}
	}
	return found
}

// helps are the commands of the program, each with what --help says of it.
func helps(t *testing.T) map[string]string {
	t.Helper()
	_, list, _ := strings.Cut(execute(t, nil, "--help").stdout, "Commands:\n")
	commands := map[string]string{}
	for _, m := range regexp.MustCompile(`(?m)^  ([a-z][a-z -]*?)(?:  |$)`).FindAllStringSubmatch(list, -1) {
		commands[m[1]] = execute(t, nil, append(strings.Fields(m[1]), "--help")...).stdout
	}
	require.Greater(t, len(commands), 20, "the list of commands has another form")
	return commands
}

// Every command that a page names is one of the program's, and so are its flags.
func TestPagesNameCommandsThatExist(t *testing.T) {
	commands := helps(t)
	groups := map[string]bool{}
	for name := range commands {
		if group, _, more := strings.Cut(name, " "); more {
			groups[group] = true
		}
	}
	count := 0
	for page, text := range pages(t) {
		for _, c := range callsOf(page, text, slices.Collect(maps.Keys(groups))) {
			count++
			for _, fault := range c.faults(commands, groups) {
				t.Errorf("%s: %s: %q", c.page, fault, strings.TrimSpace(c.line))
			}
		}
	}
	require.Greater(t, count, 80, "hardly a command was found: have the pages another form?")
	// What remedies name is a literal that ends where an argument follows, or has flags.
	remedies := regexp.MustCompile(`"((?:` + strings.Join(slices.Collect(maps.Keys(groups)), "|") + `) [a-z-]+ (?:--[^"]*)?)"`)
	for name, text := range sources(t, "../operate/*.go") {
		for _, m := range remedies.FindAllStringSubmatch(text, -1) {
			count++
			for _, fault := range (called{name, m[0], strings.Fields(m[1])}).faults(commands, groups) {
				t.Errorf("%s: %s: %q", name, fault, m[0])
			}
		}
	}
	require.Greater(t, count, 90, "hardly a remedy has a command")
	for name, text := range sources(t, "../operate/dashboard/templates/*.html", "../operate/dashboard/*.go") {
		for _, m := range regexp.MustCompile(`durable-worker ([a-z][^<>"\x60{]*)`).FindAllStringSubmatch(text, -1) {
			for _, fault := range (called{name, m[0], strings.Fields(quoted.ReplaceAllString(m[1], "''"))}).faults(commands, groups) {
				t.Errorf("%s: %s: %q", name, fault, m[0])
			}
		}
	}
}

// sources are the texts of files, without tests.
func sources(t *testing.T, patterns ...string) map[string]string {
	t.Helper()
	texts := map[string]string{}
	for _, pattern := range patterns {
		names, err := filepath.Glob(pattern)
		require.NoError(t, err)
		require.NotEmpty(t, names)
		for _, name := range names {
			if strings.HasSuffix(name, "_test.go") {
				continue
			}
			text, err := os.ReadFile(name)
			require.NoError(t, err)
			texts[name] = string(text)
		}
	}
	return texts
}

var (
	quoted = regexp.MustCompile(`'[^']*'`)
	verbs  = regexp.MustCompile(`^[a-z][a-z-]*$`)
	flags  = regexp.MustCompile(`--[a-z][a-z-]*`)
)

// faults compares a command with the program's: its name, the others that are
// named beside it ("list | show"), and its flags.
func (c called) faults(commands map[string]string, groups map[string]bool) (faults []string) {
	name, rest := c.args[0], c.args[1:]
	if !verbs.MatchString(name) {
		return nil // flags of no command, or a place for one
	}
	var help strings.Builder
	names := []string{name}
	if groups[name] {
		names = nil
		for len(rest) > 0 && (verbs.MatchString(rest[0])) {
			names = append(names, name+" "+rest[0])
			if rest = rest[1:]; len(rest) < 2 || rest[0] != "|" {
				break
			}
			rest = rest[1:]
		}
	}
	for _, one := range names {
		text, ok := commands[one]
		if !ok {
			faults = append(faults, "there is no command "+one)
		}
		help.WriteString(text)
	}
	for _, flag := range flags.FindAllString(strings.Join(rest, " "), -1) {
		if len(faults) == 0 && len(names) > 0 && !regexp.MustCompile(regexp.QuoteMeta(flag)+`\b`).MatchString(help.String()) {
			faults = append(faults, "there is no flag "+flag)
		}
	}
	return faults
}

func TestCommandsOfPagesAreCompared(t *testing.T) {
	commands, groups := map[string]string{"work": "", "runs list": "--json --state=STATE", "runs show": ""}, map[string]bool{"runs": true}
	text := "```\n$ A=b durable-worker runs list | show   prints\ndurable-worker runs gone\nbin/worker\n```\nThe `runs list --json --tag x` and `durable-worker\nstart`, `runs`, `durable-worker VERB --help`.\n"
	var got []string
	for _, c := range callsOf("a.md", text, []string{"runs"}) {
		got = append(got, c.faults(commands, groups)...)
	}
	require.Equal(t, []string{"there is no command runs gone", "there is no flag --tag", "there is no command start"}, got)
}
