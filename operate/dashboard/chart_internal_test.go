package dashboard

import (
	"bytes"
	"html/template"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/operate"
	"github.com/durable-worker/durable-worker/store"
)

// byTemplate is what a chart writes without a template.
const byTemplate = `{{$c := .}}{{range .Bars}}<rect class="{{.Class}}" x="{{printf "%.1f" .X}}" y="{{printf "%.1f" .Y}}" width="{{printf "%.1f" .W}}" height="{{printf "%.1f" .H}}"/>{{end}}
{{range .Hits}}<rect class="hit" x="{{printf "%.1f" .X}}" y="{{$c.Top}}" width="{{printf "%.1f" .W}}" height="{{$c.Tall}}" data-at="{{.At}}" data-tip="{{.Tip}}"/>{{end}}
{{range .Rows}}<tr>{{range $i, $cell := .}}<td{{if $i}} class="n"{{end}} data-label="{{index $c.Head $i}}">{{if $i}}{{$cell}}{{else}}<time datetime="{{$cell}}" title="{{$cell}}" data-form="minute">{{$cell}}</time>{{end}}</td>{{end}}</tr>{{end}}`

func TestChartsAreDrawnAsATemplateWould(t *testing.T) {
	t.Parallel()
	month := operate.Series{Range: operate.LastMonth, At: time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC), Step: store.Duration(6 * time.Hour)}
	wait := store.Duration(3 * time.Millisecond)
	for i := range 120 {
		month.Steps = append(month.Steps, operate.SeriesStep{At: month.At.Add(time.Duration(i) * time.Duration(month.Step)), Enqueued: int64(1000 * i), Succeeded: int64(900 * i),
			Failed: int64(i % 3), Dead: int64(i % 2), Busy: store.Duration(time.Minute), Wait: operate.Percentiles{P50: &wait}})
	}
	charts := chartsOf(&month)
	hostile := *charts[0]
	hostile.Head = []string{`"><script>`, "'&"}
	hostile.Rows = [][]string{{`"><script>alert(1)</script>`, `</td><b>'&`}}
	hostile.Hits = []hit{{At: `"onmouseover="x`, Tip: "a\n<b>"}}
	hostile.Bars = []bar{{Class: `"/><script>`}}
	written := template.Must(template.New("").Parse(byTemplate))
	for _, c := range append(charts, &hostile) {
		var want bytes.Buffer
		require.NoError(t, written.Execute(&want, c))
		require.Equal(t, want.String(), string(c.DrawnBars())+"\n"+string(c.DrawnHits())+"\n"+string(c.DrawnRows()))
	}
	require.Len(t, charts[0].Rows, 120)
	require.Equal(t, month.Steps[119].At.Format(time.RFC3339), charts[0].Rows[0][0], "the newest come first")
}

func TestVisibleKeepsWhatPeopleSee(t *testing.T) {
	t.Parallel()
	for page, want := range map[string]string{
		"":                             "",
		"<p>plain</p>":                 "<p>plain</p>",
		"a\tb\nc é 👩 z":                "a\tb\nc é 👩 z",
		"\x1b[31m<i>\u202e</i>\x7fend": `\u001b[31m<i>\u202e</i>\u007fend`,
		"<b title=\"\u202e\x00\">":     `<b title="&#x202e;&#x0;">`,
		"cut \xff here\xff":            "cut \ufffd here\ufffd",
	} {
		require.Equal(t, want, string(visible([]byte(page))))
	}
}
