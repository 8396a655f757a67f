package api_test

import (
	"maps"
	"net/http"
	"os"
	"regexp"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/operate/api"
)

// endpointsOf are the rows of the table of a page that lists endpoints, each with the
// role that it needs, and what is wrong with them where these are served.
func endpointsOf(page string, served []string) (roles map[string]string, faults []string) {
	roles = map[string]string{}
	row := regexp.MustCompile("(?m)^\\| `([A-Z]+ /[^`]*)` \\|.*\\| ([^|]*) \\|$")
	for _, m := range row.FindAllStringSubmatch(page, -1) {
		if roles[m[1]] != "" {
			faults = append(faults, m[1]+" is listed twice")
		}
		if roles[m[1]] = m[2]; !slices.Contains(served, m[1]) {
			faults = append(faults, m[1]+" does not exist")
		}
	}
	for _, pattern := range served {
		if roles[pattern] == "" {
			faults = append(faults, pattern+" is missing")
		}
	}
	return roles, faults
}

// TestThePageNamesEveryEndpoint holds the table of docs/api.md to the routes, and its
// roles to what a viewer is refused.
func TestThePageNamesEveryEndpoint(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/api.md")
	require.NoError(t, err)
	roles, faults := endpointsOf(string(page), api.Patterns())
	require.Empty(t, faults, "docs/api.md")

	b := newBench(t).as(viewerToken)
	for _, pattern := range slices.Sorted(maps.Keys(roles)) {
		need := "viewer"
		if method, path := target(pattern); path != "/events" { // it does not end; a viewer may read it
			if b.send(method, path, "").Code == http.StatusForbidden {
				need = "operator"
			}
		}
		require.Equal(t, need, roles[pattern], "the role of %s in docs/api.md", pattern)
	}
}

func TestEndpointsOfAPageAreCompared(t *testing.T) {
	t.Parallel()
	page := "| endpoint | what it does | role |\n|---|---|---|\n| `GET /a` | reads | viewer |\n| `PUT /a` | writes | operator |\n| `GET /a` | reads | viewer |\n| `GET /gone` | reads | viewer |\n"
	roles, faults := endpointsOf(page, []string{"GET /a", "PUT /a", "GET /b"})
	require.Equal(t, map[string]string{"GET /a": "viewer", "PUT /a": "operator", "GET /gone": "viewer"}, roles)
	require.Equal(t, []string{"GET /a is listed twice", "GET /gone does not exist", "GET /b is missing"}, faults)
}
