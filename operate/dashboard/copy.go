package dashboard

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf16"

	"github.com/durable-worker/durable-worker/store"
)

// copied is a run as a line that enqueues another one like it.
type copied struct{ Name, Text string }

// copiesOf writes a run as a command, as a request of the API and as Go.
func copiesOf(r *store.Record) []copied {
	args := plainJSON(r.Args)
	command := []string{"durable-worker enqueue", quoted(r.Job), "--args", quoted(args), "--queue", quoted(r.Queue)}
	order := map[string]any{"job": r.Job, "args": json.RawMessage(args), "queue": r.Queue}
	program := []string{"durable.OnQueue(" + strconv.Quote(r.Queue) + ")"}
	if r.Priority != 0 {
		command = append(command, fmt.Sprintf("--priority=%d", r.Priority))
		order["priority"] = r.Priority
		program = append(program, fmt.Sprintf("durable.Priority(%d)", r.Priority))
	}
	if len(r.Tags) > 0 {
		order["tags"] = r.Tags
		var tags []string
		for _, tag := range r.Tags {
			command = append(command, "--tag", quoted(tag))
			tags = append(tags, strconv.Quote(tag))
		}
		program = append(program, "durable.Tags("+strings.Join(tags, ", ")+")")
	}
	body, err := json.Marshal(order)
	if err != nil { // its args are not JSON
		return nil
	}
	return []copied{
		{"Command", strings.Join(command, " ")},
		{"curl", `curl "$DURABLE_URL/api/v1/runs" -H "Authorization: Bearer $TOKEN" -H "Content-Type: application/json" -d ` + quoted(plainJSON(body))},
		{"Go", fmt.Sprintf("client.Enqueue(ctx, durable.NewJob[json.RawMessage](%s).New(json.RawMessage(%s), %s))", strconv.Quote(r.Job), strconv.Quote(args), strings.Join(program, ", "))},
	}
}

// quoted is a text as one word of a shell.
func quoted(text string) string { return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'" }

// plainJSON is a JSON text in which what is not ASCII is escaped: it stays the same
// wherever it is copied to.
func plainJSON(text json.RawMessage) string {
	var out strings.Builder
	for _, r := range string(text) {
		switch {
		case r < 0x7f:
			out.WriteRune(r)
		case r > 0xffff:
			high, low := utf16.EncodeRune(r)
			fmt.Fprintf(&out, `\u%04x\u%04x`, high, low)
		default:
			fmt.Fprintf(&out, `\u%04x`, r)
		}
	}
	return out.String()
}
