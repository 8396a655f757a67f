// Package tasks_test does on the pages what people come for, and counts the clicks.
package tasks_test

import (
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/operate/dashboard/browsertest/browser"
	"github.com/durable-worker/durable-worker/operate/dashboard/browsertest/scene"
	"github.com/durable-worker/durable-worker/store"
)

// task is a question of people who have never seen the pages: they need clicks alone, from
// the overview on. The word that confirms a change is the only thing that is typed.
type task struct {
	name   string
	clicks []string // what is clicked, each on the page to which the last one has led
	word   string   // typed into the question that is open; empty: none is asked for
	sees   string   // a condition of the last page, in script
}

// has is the condition that an element holds a text.
func has(selector, text string) string {
	return `[...document.querySelectorAll(` + "`" + selector + "`" + `)].some((e) => e.textContent.includes("` + text + `"))`
}

// tasks are the five, each within three clicks; what changes something has its question
// besides.
func tasks() []task {
	return []task{
		{name: "which job fails most since noon, and why", clicks: []string{`.nav a[href$="problems"]`, `[data-noon]`},
			sees: has("#failing tbody tr:first-child", "mail.send") + "&&" + has("#list .reason", "field Customer.VatID is missing")},
		{name: "why does this run wait", clicks: []string{`#figures a`, `#list a[href*="runs/"]`}, sees: has("#explained", "paused by ada@ops")},
		{name: "what did the schedule of the night do", clicks: []string{`.nav a[href$="schedules"]`, `#list a[href*="name=ping"]`}, sees: has("#times", "succeeded in")},
		{name: "retry the runs of one customer", clicks: []string{`#latest li a`, `#like a[href*="customer"]`, `.bar button[value="retry"]`, `dialog[open] button.main`}, word: "retry",
			sees: has("h1", "Retry all that match") + "&&" + has("#summary", "changed")},
		{name: "pause a queue and see it drain", clicks: []string{`.nav a[href$="queues"]`, `a[href*="name=bulk"][href*="action=pause"]`, `dialog[open] button.main`},
			sees: has("#list tr", "still executing")},
	}
}

// TestFiveTasksNeedFewClicks does them from the overview.
func TestFiveTasksNeedFewClicks(t *testing.T) {
	s, err := scene.Full(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	b, err := browser.Open(t.Context())
	require.NoError(t, err)
	t.Cleanup(b.Close)
	for _, task := range tasks() {
		t.Run(task.name, func(t *testing.T) { solve(t, b, s, task) })
	}
	require.Empty(t, b.Said())
}

func solve(t *testing.T, b *browser.Browser, s *scene.Scene, task task) {
	began := time.Now()
	require.NoError(t, b.Show(s.URL, browser.View{Width: 1280, Height: 900}))
	for i, click := range task.clicks {
		if task.word != "" && i == len(task.clicks)-1 {
			require.NoError(t, b.Run(chromedp.WaitVisible(`dialog[open] [name="word"]`), chromedp.SetValue(`dialog[open] [name="word"]`, task.word)))
		}
		require.NoError(t, b.Run(chromedp.WaitVisible(click), chromedp.Click(click)), click)
	}
	require.Eventually(t, func() bool { // the page that answers may not be there yet
		var seen bool
		return b.Run(chromedp.Evaluate(task.sees, &seen)) == nil && seen
	}, 15*time.Second, 50*time.Millisecond, task.sees)
	t.Logf("%d clicks, %v", len(task.clicks), time.Since(began).Round(10*time.Millisecond))
	if task.word == "" {
		return
	}
	list, err := s.Operator.Changes(t.Context(), store.ChangeFilter{Kind: "bulk", Limit: 1})
	require.NoError(t, err)
	require.Len(t, list.Changes, 1)
	require.Positive(t, list.Changes[0].Runs)
}
