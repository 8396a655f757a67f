package durablecmd

import (
	"context"
	"fmt"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/durable-worker/durable-worker/store"
)

// helpVerb is the command help; parse replaces it by --help.
type helpVerb struct {
	Command []string `arg:"" optional:"" help:"Command to explain."`
}

// completionVerb prints what makes a shell complete the program's commands.
type completionVerb struct {
	Shell string `arg:"" enum:"bash,zsh,fish" help:"bash, zsh or fish."`
}

// wordsVerb is what the scripts of completion call, with the words so far. It is not
// part of the grammar: its words are whatever was typed.
const wordsVerb = "__complete"

// completions are the scripts by shell, for a program and a name for functions.
var completions = map[string]string{ //nolint:gochecknoglobals // a constant table
	"bash": `FUNCTION() {
    local IFS=$'\n'
    COMPREPLY=($("${COMP_WORDS[0]}" ` + wordsVerb + ` "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null))
}
complete -o default -F FUNCTION PROGRAM
`,
	"zsh": `#compdef PROGRAM
FUNCTION() {
    local -a found
    found=("${(@f)$("${words[1]}" ` + wordsVerb + ` "${(@)words[2,$CURRENT]}" 2>/dev/null)}")
    compadd -- $found
}
compdef FUNCTION PROGRAM
`,
	"fish": `function FUNCTION
    set -l words (commandline -opc)
    $words[1] ` + wordsVerb + ` $words[2..-1] (commandline -ct) 2>/dev/null
end
complete -c PROGRAM -f -a '(FUNCTION)'
`,
}

// Run prints the script.
func (v completionVerb) Run(_ context.Context, p *program) error {
	function := "_" + strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' {
			return r
		}
		return '_'
	}, p.name)
	_, err := fmt.Fprint(p.stdout, strings.NewReplacer("FUNCTION", function, "PROGRAM", p.name).Replace(completions[v.Shell]))
	return err
}

// complete prints what the last of the words can become, one on a line.
func (p *program) complete(model *kong.Node, words []string) error {
	if len(words) == 0 {
		words = []string{""}
	}
	node, flag := model, (*kong.Flag)(nil)
	typed := words[:len(words)-1]
	for _, word := range typed {
		if flag != nil { // this is its value
			flag = nil
			continue
		}
		if strings.HasPrefix(word, "-") {
			flag = valueFlag(node, word)
		} else if child := childOf(node, word); child != nil {
			node = child
		}
	}
	for _, candidate := range candidates(node, flag, words[len(words)-1]) {
		if _, err := fmt.Fprintln(p.stdout, candidate); err != nil {
			return err
		}
	}
	return nil
}

// childOf is the command of a name.
func childOf(node *kong.Node, name string) *kong.Node {
	for _, child := range node.Children {
		if child.Type == kong.CommandNode && child.Name == name {
			return child
		}
	}
	return nil
}

// valueFlag is the flag that a word names, if the next word is its value.
func valueFlag(node *kong.Node, word string) *kong.Flag {
	for _, group := range node.AllFlags(true) {
		for _, flag := range group {
			if "--"+flag.Name == word && !flag.IsBool() {
				return flag
			}
		}
	}
	return nil
}

// candidates are the words that may stand at a place and begin as typed.
func candidates(node *kong.Node, flag *kong.Flag, typed string) (found []string) {
	add := func(word string) {
		if strings.HasPrefix(word, typed) {
			found = append(found, word)
		}
	}
	switch {
	case flag != nil:
		for _, value := range valuesOf(node, flag.Value) {
			add(value)
		}
	case strings.HasPrefix(typed, "-"):
		for _, group := range node.AllFlags(true) {
			for _, flag := range group {
				add("--" + flag.Name)
			}
		}
	default:
		for _, child := range node.Children {
			if !child.Hidden {
				add(child.Name)
			}
		}
		for _, positional := range node.Positional {
			for _, value := range valuesOf(node, positional) {
				add(value)
			}
		}
	}
	return found
}

// valuesOf are the values that a flag or an argument of a command may have, where there are few.
func valuesOf(node *kong.Node, value *kong.Value) (values []string) {
	if value.Enum != "" {
		return strings.Split(value.Enum, ",")
	}
	switch {
	case value.Name != "state":
	case node.Parent != nil && node.Parent.Name == "batches":
		for _, state := range store.BatchStates() {
			values = append(values, state.String())
		}
	default:
		for _, state := range store.States() {
			values = append(values, state.String())
		}
	}
	return values
}
