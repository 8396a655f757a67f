package storable_test

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/internal/storable"
	"github.com/durable-worker/durable-worker/store"
)

func TestCheckJSON(t *testing.T) {
	deep := func(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }
	for text, want := range map[string]string{
		`{"a":{"b":["x","ok\u00e9","\ud83d\ude00"]}}`: "",
		`{"a":"\\u0000 is text"}`:                     "",
		`{"a":"\\\\ud800"}`:                           "",
		`12345678901234567890123`:                     "",
		deep(store.MaxJSONDepth):                      "",
		deep(store.MaxJSONDepth + 1):                  "nested deeper",
		`"` + strings.Repeat("[", 500) + `"`:          "",
		`{"user":{"names":["a","b\u0000"]}}`:          ".user.names[1]: holds the character NUL",
		`{"user":[{"x":1},{"name":"\ud800"}]}`:        ".user[1].name: holds a lone surrogate",
		`{"a":"\udc00x"}`:                             ".a: holds a lone surrogate",
		`{"a":"\ud800\u0041"}`:                        ".a: holds a lone surrogate",
		`{"a":"\ufffd"}`:                              ".a: not valid UTF-8",
		"{\"a\":\"\xff\"}":                            ".a: not valid UTF-8",
		`{"a\u0000":1}`:                               "holds the character NUL",
		`{"a":1} x`:                                   "not valid JSON",
		``:                                            "not valid JSON",
		`"` + strings.Repeat("x", store.MaxArgsSize) + `"`:   "want at most",
		`"` + strings.Repeat("x", store.MaxArgsSize-2) + `"`: "",
		`{"a":[[[{"b":"` + "\xc3\x28" + `"}]]]}`:             ".a[0][0][0].b: not valid UTF-8",
		`{"x":"\u005c","y":["\u0000"]}`:                      ".y[0]: holds the character NUL",
	} {
		err := storable.CheckJSON([]byte(text), store.MaxArgsSize, store.MaxJSONDepth)
		if want == "" {
			require.NoError(t, err, storable.Clip(text, 80))
		} else {
			require.ErrorContains(t, err, want, storable.Clip(text, 80))
		}
	}
}

func TestStorable(t *testing.T) {
	require.Equal(t, "plain", storable.Text("plain", store.MaxErrorSize))
	require.Equal(t, "a\uFFFDb\uFFFD", storable.Text("a\x00b\xff", store.MaxErrorSize))
	long := storable.Text(strings.Repeat("é", store.MaxErrorSize), store.MaxErrorSize)
	require.LessOrEqual(t, len(long), store.MaxErrorSize)
	require.True(t, utf8.ValidString(long))
	require.True(t, strings.HasSuffix(long, "(cut)"))
	grown := storable.Text(strings.Repeat("\x00", store.MaxErrorSize), store.MaxErrorSize)
	require.LessOrEqual(t, len(grown), store.MaxErrorSize)
	require.True(t, strings.HasSuffix(grown, "(cut)"))
}

func TestHasControl(t *testing.T) {
	for _, text := range []string{"\x00", "a\n", "\x1b[31m", "\x7f", "a\u009b31m", "\u0085"} {
		require.True(t, storable.HasControl(text), "%q", text)
	}
	for _, text := range []string{"", "München", "\u00a0", "日本"} {
		require.False(t, storable.HasControl(text), "%q", text)
	}
}

func FuzzCheckJSON(f *testing.F) {
	for _, seed := range []string{`{"a":"\ud800"}`, `["\u0000",{"b":"\\u0000"}]`, "\"\xff\"", `{"a":{"b":[1,2,{"c":"\udfff"}]}}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		if storable.CheckJSON(text, store.MaxArgsSize, store.MaxJSONDepth) != nil {
			return
		}
		// What is accepted survives a strict reader: valid, no NUL anywhere.
		var value any
		require.NoError(t, json.Unmarshal(text, &value))
		again, err := json.Marshal(value)
		require.NoError(t, err)
		require.NotContains(t, string(again), `\u0000`)
		require.NotContains(t, string(again), `\ufffd`)
	})
}

func FuzzStorable(f *testing.F) {
	f.Add("a\x00\xff")
	f.Fuzz(func(t *testing.T, text string) {
		out := storable.Text(text, store.MaxErrorSize)
		require.True(t, utf8.ValidString(out))
		require.NotContains(t, out, "\x00")
		require.LessOrEqual(t, len(out), store.MaxErrorSize)
	})
}
