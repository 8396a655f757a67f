package api_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/internal/pgtest"
)

// hostileTexts are values of parameters and of members that a database, a parser or a
// page could choke on.
func hostileTexts() []string {
	return []string{
		"", " ", "\x00", "a\x00b", "\x7f", "\u202e", "\ufeff", "\xff", "\xed\xa0\x80", "𝕏", "é", "e\u0301", "%", "_", "%%", `\`, `\\`, `'`, `''`, `"`, "`", ";", "--", "/*", "$1", "$$", "{}", "[]", "null", "true", "NaN", "Infinity", "-Infinity",
		"0", "-0", "-1", "1", "+1", "01", "1e3", "1e400", "0x10", "1.5", "9223372036854775807", "9223372036854775808", "-9223372036854775808", "18446744073709551616", "2147483648", "-2147483649", strings.Repeat("9", 400),
		"0s", "1ns", "-1s", "1h", "2562047h47m16.854775807s", "-2562047h47m16.854775808s", "99999999999h", "1d", "100000d", "1y",
		"0001-01-01T00:00:00Z", "9999-12-31T23:59:59.999999999Z", "9999-12-31T23:59:59-23:59", "0000-01-01T00:00:00Z", "10000-01-01T00:00:00Z", "-4713-01-01T00:00:00Z", "2030-02-29T00:00:00Z", "2030-06-30T23:59:60Z", "infinity", "epoch", "now",
		"00000000-0000-0000-0000-000000000000", "ffffffff-ffff-ffff-ffff-ffffffffffff", "0190c5a0-7d6c-7b0e-9f6e-3a1f4b2c5d6e", "not-a-uuid",
		"mail", "report", "default", "slow", "a=b", "=", "a=", "=b", "..", "../..", "/", "//", "%2e%2e", "a/b", "a?b", "a#b", "a b", "\t", "\n", "\r\nX: y", "<script>alert(1)</script>", "•••", strings.Repeat("a", 300), strings.Repeat("é", 200), strings.Repeat("a", 5000), "pending", "dead", "running", "cancel", "retry", "minute", "cron:* * * * *", "@every 1s", "0 0 30 2 *",
	}
}

// hostileValues are hostileTexts and what JSON has beside texts.
func hostileValues() (all []any) {
	for _, text := range hostileTexts() {
		all = append(all, text)
	}
	deep := any(map[string]any{"a": 1})
	for range 200 {
		deep = map[string]any{"a": deep}
	}
	return append(all, nil, true, false, 0, 1, -1, 1.5, json.Number("1e400"), json.Number("-0"), json.Number("9223372036854775808"), json.Number("-9223372036854775809"), json.Number("1e-400"), json.Number("2147483648"), json.Number("32768"),
		[]any{}, []any{nil}, []any{""}, []any{"a", "a"}, []any{[]any{}}, []any{map[string]any{}}, slices.Repeat([]any{"x"}, 2000), map[string]any{}, map[string]any{"": ""}, map[string]any{"\x00": "x"}, map[string]any{"a": nil}, map[string]any{"a": "b"}, deep)
}

// asker makes requests that nearly make sense of the description of the API.
type asker struct {
	random *rand.Rand
	doc    *openapi3.T
	known  map[string][]string // values of path parameters that exist
	texts  []string
	values []any
}

func pick[T any](a *asker, from []T) T { return from[a.random.IntN(len(from))] }

// value is a value of a schema; with some probability one that is hostile, in it or
// instead of it.
func (a *asker) value(s *openapi3.Schema, depth int) any {
	if a.random.IntN(6) == 0 || s == nil {
		return pick(a, a.values)
	}
	for _, choices := range []openapi3.SchemaRefs{s.OneOf, s.AnyOf} {
		if len(choices) > 0 {
			return a.value(pick(a, choices).Value, depth)
		}
	}
	if len(s.AllOf) > 0 {
		return a.value(pick(a, s.AllOf).Value, depth)
	}
	switch {
	case len(s.Enum) > 0:
		return pick(a, s.Enum)
	case s.Type.Is("object") || len(s.Properties) > 0:
		made := map[string]any{}
		for name, of := range s.Properties {
			if slices.Contains(s.Required, name) || a.random.IntN(4) == 0 && depth < 4 {
				made[name] = a.value(of.Value, depth+1)
			}
		}
		return made
	case s.Type.Is("array"):
		made := []any{}
		for range a.random.IntN(3) {
			made = append(made, a.value(s.Items.Value, depth+1))
		}
		return made
	case s.Type.Is("integer"):
		return pick(a, []any{0, 1, 2, 5, 100, 1000, -1, 10001, json.Number("32768"), json.Number("9223372036854775807")})
	case s.Type.Is("boolean"):
		return a.random.IntN(2) == 0
	default:
		return pick(a, a.texts)
	}
}

// request is a request of an operation.
func (a *asker) request(path string, of *openapi3.PathItem, op *openapi3.Operation) (target, body string) {
	query := url.Values{}
	for _, p := range slices.Concat(of.Parameters, op.Parameters) {
		text := pick(a, a.texts)
		if known := a.known[p.Value.Name]; len(known) > 0 && a.random.IntN(2) == 0 {
			text = pick(a, known)
		}
		switch {
		case p.Value.In == "path":
			path = strings.Replace(path, "{"+p.Value.Name+"}", url.PathEscape(text), 1)
		case p.Value.In == "query" && (p.Value.Required || a.random.IntN(4) == 0):
			if s := p.Value.Schema.Value; a.random.IntN(2) == 0 && len(s.Enum) > 0 {
				text = fmt.Sprint(pick(a, s.Enum))
			}
			query.Add(p.Value.Name, text)
		}
	}
	if op.RequestBody != nil {
		text, _ := json.Marshal(a.value(op.RequestBody.Value.Content.Get("application/json").Schema.Value, 0))
		body = string(text)
	}
	return path + "?" + query.Encode(), body
}

// TestHostileRequestsOfEveryOperation: whatever is asked, the answer is the client's fault or
// an answer, on every engine, soon, and as the description has it.
func TestHostileRequestsOfEveryOperation(t *testing.T) {
	t.Parallel()
	const requests = 400 // more take long on a busy machine; each test chooses others
	for name, address := range map[string]string{"memory": "memory:", "sqlite": "sqlite:" + t.TempDir() + "/hostile.db", "postgres": pgtest.Server(t)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := benchOn(t, address)
			seed := uint64(time.Now().UnixNano()) //nolint:gosec // any
			t.Logf("seed %d", seed)
			a := &asker{random: rand.New(rand.NewPCG(seed, 1)), doc: b.doc, texts: hostileTexts(), values: hostileValues(), //nolint:gosec // a test
				known: map[string][]string{"id": {b.enqueue(`{}`), b.enqueue(`{"secret":"canary"}`)}, "name": {"mail", "default"}, "n": {"1"}, "queue": {"default"}, "job": {"mail"}}}
			type operation struct {
				method, path string
				of           *openapi3.PathItem
				op           *openapi3.Operation
			}
			var all []operation
			for path, of := range b.doc.Paths.Map() {
				for method, op := range of.Operations() {
					if path != "/events" && !strings.HasSuffix(path, "/wait") { // they last
						all = append(all, operation{method, path, of, op})
					}
				}
			}
			for range requests {
				one := pick(a, all)
				target, body := a.request(one.path, one.of, one.op)
				if len(target) > 8000 || one.method == http.MethodGet && body != "" {
					continue
				}
				began := time.Now()
				w := b.send(one.method, target, body)
				require.Less(t, w.Code, 500, "%s %s %.500s: %s\n%s", one.method, target, body, w.Body, b.log)
				require.Less(t, time.Since(began), 15*time.Second, "%s %s %.500s", one.method, target, body)
			}
			require.NotContains(t, b.log.String(), "panicked")
			require.NotContains(t, b.log.String(), "canary")
		})
	}
}
