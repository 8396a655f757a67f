package deploy_test

import (
	"encoding/json"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var (
	metricName = regexp.MustCompile(`\b(?:durable|db_client)_[a-z_]+\b`)
	selector   = regexp.MustCompile(`\{[^}]*\}`)
)

// exported are the names of the series of /metrics, with their labels, as the writer of
// package observe/metrics has them in its text: a family's name, and what it labels.
func exported(t *testing.T) map[string]bool {
	t.Helper()
	names := map[string]bool{}
	for _, file := range []string{"families.go", "database.go", "snapshot.go"} {
		text, err := os.ReadFile("../observe/metrics/" + file)
		require.NoError(t, err)
		for _, line := range strings.Split(string(text), "\n") {
			found := regexp.MustCompile(`"((?:durable|db_client)_[a-z_]+)"`).FindStringSubmatch(line)
			if found == nil {
				continue
			}
			names[found[1]] = true
			if strings.Contains(line, "histogram") {
				for _, suffix := range []string{"_bucket", "_sum", "_count"} {
					names[found[1]+suffix] = true
				}
			}
		}
	}
	require.Greater(t, len(names), 40)
	return names
}

// uses are the metrics that an expression names.
func uses(expression string) []string {
	return metricName.FindAllString(selector.ReplaceAllString(expression, ""), -1)
}

// balanced requires that an expression is whole.
func balanced(t *testing.T, expression string) {
	t.Helper()
	for _, pair := range []string{"()", "[]", "{}"} {
		require.Equal(t, strings.Count(expression, pair[:1]), strings.Count(expression, pair[1:]), expression)
	}
}

func TestAlertsNameMetricsThatThereAre(t *testing.T) {
	t.Parallel()
	known := exported(t)
	runbook, err := os.ReadFile("../docs/operations.md")
	require.NoError(t, err)
	rules := at(t, documents(t, "prometheus/durable.rules.yaml")[0], "groups", 0, "rules").([]any)
	require.Greater(t, len(rules), 15)
	var alerts []string
	for _, one := range rules {
		rule := one.(map[string]any)
		name, expression := rule["alert"].(string), rule["expr"].(string)
		alerts = append(alerts, name)
		balanced(t, expression)
		require.NotEmpty(t, uses(expression), name)
		for _, metric := range uses(expression) {
			require.True(t, known[metric], "%s names %s", name, metric)
		}
		require.Contains(t, []string{"critical", "warning"}, at(t, rule, "labels", "severity"))
		url, _ := at(t, rule, "annotations", "runbook_url").(string)
		_, anchor, found := strings.Cut(url, "docs/operations.md#")
		require.True(t, found, url)
		require.Contains(t, string(runbook), `<a id="`+anchor+`"></a>`+name+" ", name)
		require.NotEmpty(t, at(t, rule, "annotations", "summary"))
	}
	require.Len(t, slices.Compact(slices.Sorted(slices.Values(alerts))), len(alerts), "each once")
}

func TestTheBoardNamesMetricsThatThereAre(t *testing.T) {
	t.Parallel()
	known := exported(t)
	text, err := os.ReadFile("grafana/durable.json")
	require.NoError(t, err)
	var board struct {
		Templating struct {
			List []struct{ Name, Query string }
		}
		Panels []struct {
			Type, Title, Description string
			FieldConfig              struct{ Defaults struct{ Unit string } }
			Targets                  []struct{ Expr string }
		}
	}
	require.NoError(t, json.Unmarshal(text, &board))
	var variables []string
	for _, v := range board.Templating.List {
		variables = append(variables, v.Name)
		for _, metric := range uses(v.Query) {
			require.True(t, known[metric], v.Query)
		}
	}
	require.Equal(t, []string{"datasource", "job", "queue", "instance"}, variables)
	var rows []string
	for _, p := range board.Panels {
		if p.Type == "row" {
			rows = append(rows, p.Title)
			continue
		}
		require.NotEmpty(t, p.FieldConfig.Defaults.Unit, p.Title)
		require.NotEmpty(t, p.Description, p.Title)
		require.NotEmpty(t, p.Targets, p.Title)
		for _, target := range p.Targets {
			balanced(t, target.Expr)
			require.NotEmpty(t, uses(target.Expr), p.Title)
			for _, metric := range uses(target.Expr) {
				require.True(t, known[metric], "%s names %s", p.Title, metric)
			}
			require.NotRegexp(t, `\[\d`, target.Expr, "a rate takes $__rate_interval")
		}
	}
	require.Equal(t, []string{"Now", "Throughput", "Latency", "Queues", "Workers and leases", "Schedules", "Limits and locks", "Database"}, rows)
}

func TestEveryMetricIsInTheDocs(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../docs/operations.md")
	require.NoError(t, err)
	for name := range exported(t) {
		base := name
		for _, suffix := range []string{"_bucket", "_sum", "_count"} {
			if plain, cut := strings.CutSuffix(name, suffix); cut && exported(t)[plain] {
				base = plain
			}
		}
		require.Contains(t, string(text), "`"+base+"`", "docs/operations.md says nothing of it")
	}
}
