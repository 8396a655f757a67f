package dashboard

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/durable-worker/durable-worker/operate"
	"github.com/durable-worker/durable-worker/store"
)

// alike leads to the runs in the same state that have something in common with a run: its
// customer, say.
type alike struct {
	Name, Value string
	To          string
}

// alikeOf are the ways from a run to those like it. By its args only operators search.
func alikeOf(r *store.Record, operator bool) []alike {
	state := r.State.String()
	like := []alike{{"job", r.Job, link("runs", "state", state, "job", r.Job)}}
	for _, tag := range r.Tags {
		like = append(like, alike{"tag", tag, link("runs", "state", state, "tag", tag)})
	}
	for _, name := range slices.Sorted(maps.Keys(r.Metadata)) {
		like = append(like, alike{name, r.Metadata[name], link("runs", "state", state, "metadata", name+"="+r.Metadata[name])})
	}
	if operator && !strings.Contains(string(r.Args), operate.Mask) { // with a mask they are not as they are stored
		for _, member := range membersOf(r.Args) {
			like = append(like, alike{member.name, member.value, link("runs", "state", state, "job", r.Job, "args", member.text)})
		}
	}
	return like
}

// member is one value of an object, with its text in the object.
type member struct{ name, value, text string }

const (
	membersMost = 6  // values of args that lead to other runs
	memberMost  = 60 // bytes of one: of a longer one the beginning is searched
)

// membersOf are the texts and whole numbers of a JSON object, the first ones. The text
// of a number ends with what follows it: 17 is not 170.
func membersOf(args json.RawMessage) (members []member) {
	in := json.NewDecoder(bytes.NewReader(args))
	if first, err := in.Token(); err != nil || first != json.Delim('{') {
		return nil
	}
	for in.More() && len(members) < membersMost {
		from := in.InputOffset()
		name, err := in.Token()
		var value json.RawMessage
		if err != nil || in.Decode(&value) != nil {
			return members
		}
		to := in.InputOffset()
		text := strings.TrimLeft(string(args[from:to]), ", \t\r\n")
		word := string(value)
		switch {
		case int(to) >= len(args):
			continue
		case value[0] == '"' && len(word) > len(`""`):
			if json.Unmarshal(value, &word) != nil {
				return members
			}
			text = beginning(memberMost, text)
		case value[0] == '-' || value[0] >= '0' && value[0] <= '9':
			if _, err := strconv.ParseInt(word, 10, 64); err != nil {
				continue
			}
			text += string(args[to])
		default:
			continue
		}
		members = append(members, member{name.(string), word, text}) //nolint:forcetypeassert // the names of an object are texts
	}
	return members
}

// beginning is the first bytes of a text, up to a whole character.
func beginning(n int, text string) string {
	return strings.ToValidUTF8(text[:min(n, len(text))], "")
}
