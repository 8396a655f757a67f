package dashboard_test

import (
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/operate/dashboard"
)

// TestNamesThatCannotBeAreRefused gives each parameter of each page a text that no store can
// have, and those that are names one that is too long: the answer says so, and no store is
// asked.
func TestNamesThatCannotBeAreRefused(t *testing.T) {
	db := engines["postgres"](t)
	made := fill(t, db, "x")
	s := newSite(t, db)
	group := problemOf(s, "bad")
	long := strings.Repeat("n", 5000)
	good := form("name", "nightly", "action", "pause", "id", made.dead.String(), "group", group, "args", "{}", "word", "retry", "reason", "x", "key", "k",
		"limit", "api", "owner", "", "slot", "0", "max", "1")
	names := []string{"name", "job", "queue", "group", "key", "schedule", "tag", "worker", "kind", "subject", "by", "action", "cursor"}
	var wrong []string
	for _, pattern := range dashboard.Patterns() {
		method, path, _ := strings.Cut(pattern, " ")
		if path == "" || path == "/login" {
			continue
		}
		path = strings.TrimPrefix(strings.NewReplacer("{$}", "", "{id}", made.dead.String(), "{n}", "1", "{instance}", "web-1").Replace(path), "/")
		for _, name := range append([]string{"error", "metadata", "since", "range", "find", "reason", "owner", "back", "invented"}, names...) {
			for _, bad := range []string{"a\x00b", "a\xffb"} {
				values := url.Values{}
				for given, some := range good {
					values[given] = some
				}
				values.Set(name, bad)
				a := s.do(method, path+map[bool]string{true: "?" + values.Encode()}[method == "GET"], map[bool]url.Values{true: values}[method == "POST"])
				if a.status != 400 || strings.Contains(s.log.String(), "failed") {
					wrong = append(wrong, strings.TrimSpace(pattern+" "+name+" "+strings.ReplaceAll(bad, "\x00", "NUL")))
					s.log.Reset()
				}
			}
		}
	}
	for _, path := range []string{"schedules?name=", "limits?name=", "limits?name=api&key=", "jobs?name=", "runs?job=", "runs?queue=", "runs?schedule=", "runs?tag=", "runs?worker=", "runs?key=",
		"problems?job=", "problems?queue=", "audit?subject=", "audit?by=", "audit?kind=", "workers/", "limits/change?action=set&name=", "schedules/edit?name="} {
		if a := s.do("GET", path+long, nil); a.status != 400 || strings.Contains(s.log.String(), "failed") {
			wrong = append(wrong, path)
			s.log.Reset()
		}
	}
	for path, pairs := range map[string][]string{"schedules/change": {"action", "pause"}, "queues/change": {"action", "pause"}, "limits/change": {"action", "drain"}, "locks/release": {"slot", "0", "reason", "x"}, "schedules/edit": nil} {
		if a := s.do("POST", path, form(append(pairs, "name", long)...)); a.status != 400 {
			wrong = append(wrong, "POST "+path)
		}
	}
	require.Empty(t, wrong)
}
