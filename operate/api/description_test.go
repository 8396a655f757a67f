package api_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/durable-worker/durable-worker/operate/api"
)

var update = flag.Bool("update", false, "write openapi.json from openapi.yaml")

// TestTheDescriptionIsServedAsJSON holds openapi.json, which the program serves, to
// openapi.yaml, which people write. After a change: go test ./operate/api -update
func TestTheDescriptionIsServedAsJSON(t *testing.T) {
	text, err := os.ReadFile("openapi.yaml")
	require.NoError(t, err)
	var written any
	require.NoError(t, yaml.Unmarshal(text, &written))
	want, err := json.Marshal(written)
	require.NoError(t, err)
	require.NotContains(t, string(want), ":null", "a comma in a text without quotes begins another member")
	want = append(want, '\n')
	if *update {
		require.NoError(t, os.WriteFile("openapi.json", want, 0o600))
	}
	have, err := os.ReadFile("openapi.json")
	require.NoError(t, err)
	require.JSONEq(t, string(want), string(have), "openapi.json is not made from openapi.yaml: go test ./operate/api -update")
}

// described is the description, with every object closed: what an answer has must be
// described.
func described(t *testing.T) *openapi3.T {
	t.Helper()
	text, err := os.ReadFile("openapi.json")
	require.NoError(t, err)
	var tree any
	require.NoError(t, json.Unmarshal(text, &tree))
	closeObjects(tree)
	text, err = json.Marshal(tree)
	require.NoError(t, err)
	doc, err := openapi3.NewLoader().LoadFromData(text)
	require.NoError(t, err)
	require.NoError(t, doc.Validate(t.Context(), openapi3.DisableExamplesValidation()))
	return doc
}

func closeObjects(node any) {
	switch node := node.(type) {
	case map[string]any:
		if _, has := node["properties"].(map[string]any); has && node["additionalProperties"] == nil && node["type"] != nil {
			node["additionalProperties"] = false
		}
		for _, inner := range node {
			closeObjects(inner)
		}
	case []any:
		for _, inner := range node {
			closeObjects(inner)
		}
	}
}

// TestTheDescriptionNamesEveryOperation compares the paths with the mux.
func TestTheDescriptionNamesEveryOperation(t *testing.T) {
	t.Parallel()
	var described_ []string
	for path, item := range described(t).Paths.Map() {
		for method := range item.Operations() {
			described_ = append(described_, method+" "+path)
		}
	}
	slices.Sort(described_)
	served := api.Patterns()
	slices.Sort(served)
	require.Equal(t, served, described_)
}

// conforms holds a request and its answer to the description.
func conforms(t *testing.T, doc *openapi3.T, pattern string, r *http.Request, body string, w *httptest.ResponseRecorder) {
	t.Helper()
	method, path, _ := strings.Cut(pattern, " ")
	item := doc.Paths.Value(path)
	require.NotNil(t, item, pattern)
	operation := item.GetOperation(method)
	require.NotNil(t, operation, pattern)
	asked := r.Clone(t.Context())
	asked.Body = io.NopCloser(strings.NewReader(body))
	input := &openapi3filter.RequestValidationInput{Request: asked, PathParams: pathValues(path, r.URL.Path), QueryParams: r.URL.Query(),
		Route:   &routers.Route{Spec: doc, Path: path, PathItem: item, Method: method, Operation: operation},
		Options: &openapi3filter.Options{AuthenticationFunc: openapi3filter.NoopAuthenticationFunc, IncludeResponseStatus: true}}
	if w.Code < 400 {
		require.NoError(t, openapi3filter.ValidateRequest(t.Context(), input), "%s %s %s", method, r.URL, body)
	}
	output := &openapi3filter.ResponseValidationInput{RequestValidationInput: input, Status: w.Code, Header: w.Header(), Options: input.Options}
	output.Body = io.NopCloser(bytes.NewReader(w.Body.Bytes()))
	require.NoError(t, openapi3filter.ValidateResponse(t.Context(), output), "%s %s: %s", method, r.URL, w.Body)
}

// pathValues are the values of a path's parameters.
func pathValues(pattern, path string) map[string]string {
	values, parts := map[string]string{}, strings.Split(path, "/")
	for i, part := range strings.Split(pattern, "/") {
		if name, is := strings.CutPrefix(part, "{"); is && i < len(parts) {
			values[strings.TrimSuffix(name, "}")], _ = url.PathUnescape(parts[i])
		}
	}
	return values
}
