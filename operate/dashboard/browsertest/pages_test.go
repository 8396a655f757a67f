package browsertest_test

import (
	"context"
	_ "embed" // the checker
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/operate"
	"github.com/durable-worker/durable-worker/operate/dashboard/browsertest/browser"
	"github.com/durable-worker/durable-worker/operate/dashboard/browsertest/scene"
	"github.com/durable-worker/durable-worker/store"
)

//go:embed testdata/axe.min.js
var axe string

// check is what is wrong with a page: what hinders people, and whether it is wider than
// the window.
const check = `axe.run({resultTypes: ["violations"]}).then((r) => [
	...r.violations.filter((v) => v.impact === "serious" || v.impact === "critical").map((v) => v.id + " at " + v.nodes.slice(0, 3).map((n) => n.target.join(" ")).join(", ")),
	...(document.documentElement.scrollWidth > innerWidth ? ["wider than the window"] : []),
].join("; "))`

// chromium is started for the first test that opens a window, and serves all.
var chromium = sync.OnceValues(func() (*browser.Program, error) { return browser.Start(context.Background()) })

func TestMain(m *testing.M) {
	status := m.Run()
	if program, err := chromium(); err == nil {
		program.Close()
	}
	os.Exit(status)
}

// open opens a window of its own for a test.
func open(t *testing.T) *browser.Browser {
	program, err := chromium()
	require.NoError(t, err)
	b, err := program.Open()
	require.NoError(t, err)
	t.Cleanup(b.Close)
	return b
}

func full(t *testing.T) *scene.Scene {
	s, err := scene.Full(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

// examine opens pages at both widths and in both themes, each in a window of its own.
func examine(t *testing.T, base string, paths ...string) {
	for i, view := range []browser.View{{Width: 1280}, {Width: 1280, Dark: true}, {Width: 390}, {Width: 390, Dark: true}} {
		t.Run(fmt.Sprintf("%d wide, dark %v", view.Width, view.Dark), func(t *testing.T) {
			t.Parallel()
			b := open(t)
			view.Height = 900
			for k, path := range paths {
				if testing.Short() && k%4 != i { // each page once, each width and theme with some
					continue
				}
				view.Path = path
				require.NoError(t, b.Show(base, view), path)
				var faults string
				require.NoError(t, b.Run(chromedp.Evaluate(axe, nil), chromedp.Evaluate(check, &faults, func(p *runtime.EvaluateParams) *runtime.EvaluateParams {
					return p.WithAwaitPromise(true)
				})), path)
				require.Empty(t, faults, path)
				require.Empty(t, b.Said(), path)
			}
		})
	}
}

// pages are those that are there without a run.
func pages() []string {
	return []string{"", "runs", "problems", "queues", "jobs", "schedules", "workers", "limits", "locks", "audit", "health", "bulk"}
}

func TestPagesOfAnEmptyStore(t *testing.T) {
	t.Parallel()
	s, err := scene.Empty()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	examine(t, s.URL, pages()...)
}

func TestPagesOfAFullStore(t *testing.T) {
	t.Parallel()
	s := full(t)
	list, err := s.Operator.Runs(t.Context(), store.Filter{States: []store.State{store.Dead, store.Running}, Limit: 200})
	require.NoError(t, err)
	paths := append(pages(), "?range=24h", "schedules?name=ping", "limits?name=crm-customer&key=acme", "runs/new?job=mail.send",
		"runs/change?action=delete&all=true&job=mail.send", "queues/change?name=mail&action=pause")
	seen := map[store.State]bool{}
	for _, run := range list.Runs {
		if !seen[run.State] {
			seen[run.State] = true
			paths = append(paths, "runs/"+run.ID.String())
		}
	}
	examine(t, s.URL, paths...)
}

// TestALivePageChangesByItself: a run appears in a list that is open.
func TestALivePageChangesByItself(t *testing.T) {
	t.Parallel()
	s, b := full(t), open(t)
	require.NoError(t, b.Show(s.URL, browser.View{Path: "audit", Width: 1280, Height: 900}))
	_, err := s.Operator.As("grace@ops").PauseQueue(t.Context(), "mail")
	require.NoError(t, err)
	require.NoError(t, b.Run(chromedp.Poll(`document.getElementById("list").textContent.includes("grace@ops")`, nil, chromedp.WithPollingTimeout(20*time.Second))))
	require.Empty(t, b.Said())
}

// TestAQuestionIsADialog: with the mouse, and by the keyboard.
func TestAQuestionIsADialog(t *testing.T) {
	t.Parallel()
	s, b := full(t), open(t)
	list, err := s.Operator.Runs(t.Context(), store.Filter{States: []store.State{store.Dead}, Limit: 2})
	require.NoError(t, err)
	for i, ask := range []chromedp.Action{chromedp.Click(`a[data-act="e"]`), chromedp.KeyEvent("e")} {
		id := list.Runs[i].ID
		require.NoError(t, b.Show(s.URL, browser.View{Path: "runs/" + id.String(), Width: 1280, Height: 900}))
		require.NoError(t, b.Run(ask, chromedp.WaitVisible("dialog[open] form"), chromedp.SendKeys(`dialog input[name="reason"]`, "repaired"),
			chromedp.Click("dialog button.main"), chromedp.WaitVisible("[data-notice]")))
		changes, err := s.Operator.Changes(t.Context(), store.ChangeFilter{Subject: id.String()})
		require.NoError(t, err)
		require.Equal(t, "retry", changes.Changes[0].Action)
		require.Contains(t, string(changes.Changes[0].Detail), "repaired")
	}
	require.Empty(t, b.Said())
}

// TestEveryFormWorksWithoutScripts: the same with scripts off.
func TestEveryFormWorksWithoutScripts(t *testing.T) {
	t.Parallel()
	s, b := full(t), open(t)
	require.NoError(t, b.Show(s.URL, browser.View{Path: "queues", Width: 1280, Height: 900, NoScript: true}))
	require.NoError(t, b.Run(chromedp.Click(`a[href*="name=sync"][href*="action=pause"]`), chromedp.WaitVisible("main form.confirm"),
		chromedp.Click("main form.confirm button.main"), chromedp.WaitVisible("[data-notice]")))
	queues, err := s.Operator.Queues(t.Context(), operate.Part{})
	require.NoError(t, err)
	for _, queue := range queues.Queues {
		require.Equal(t, queue.Name == "sync" || queue.Name == "newsletter", queue.Paused, queue.Name)
	}

	// What is read: a list is narrowed and opened, and a run has its attempts and its reasons.
	plain := func(path string) {
		require.NoError(t, b.Show(s.URL, browser.View{Path: path, Width: 1280, Height: 900, NoScript: true}))
	}
	plain("runs")
	require.NoError(t, b.Run(chromedp.Click(`.tabs a[href*="state=dead"]`), chromedp.WaitVisible(`.tabs a[href*="state=dead"][aria-current]`)))
	require.NoError(t, b.Run(chromedp.SendKeys(`form.filter [name="error"]`, "VatID"),
		chromedp.Click(`form.filter button`), chromedp.WaitVisible(`form.filter [name="error"][value="VatID"]`)))
	is(t, b, `[...document.querySelectorAll("#list tbody tr")].every((row) => row.textContent.includes("VatID"))`)
	require.NoError(t, b.Run(chromedp.Click("#list tbody tr:first-child .name a"), chromedp.WaitVisible("#life")))
	is(t, b, `[...document.querySelectorAll(".needs-script")].every((e) => e.getClientRects().length === 0)`)

	// What is done to some runs of a list.
	list, err := s.Operator.Runs(t.Context(), store.Filter{States: []store.State{store.Dead}, Limit: 1})
	require.NoError(t, err)
	id := list.Runs[0].ID.String()
	plain("runs?state=dead")
	require.NoError(t, b.Run(chromedp.Click(`input[name="id"][value="`+id+`"]`), chromedp.Click(`.bar button[value="acknowledge"]`), chromedp.WaitVisible("main form.confirm"),
		chromedp.SendKeys(`[name="reason"]`, "known"), chromedp.Click("main form.confirm button.main"), chromedp.WaitVisible("[data-notice]")))
	changes, err := s.Operator.Changes(t.Context(), store.ChangeFilter{Subject: id, Action: "acknowledge"})
	require.NoError(t, err)
	require.Len(t, changes.Changes, 1)

	// A phone's menu.
	require.NoError(t, b.Show(s.URL, browser.View{Path: "runs", Width: 390, Height: 800, NoScript: true}))
	require.NoError(t, b.Run(chromedp.Click(`label.menu-button`), chromedp.WaitVisible(`.nav a[data-key="h"]`), chromedp.Click(`.nav a[data-key="h"]`), chromedp.WaitVisible(`#list`)))
}

// TestPicturesAreNotForgotten: the pictures of the docs are there.
func TestPicturesAreNotForgotten(t *testing.T) {
	page, err := os.ReadFile("../../../docs/dashboard.md")
	require.NoError(t, err)
	pictures, err := os.ReadDir("../../../docs/dashboard")
	require.NoError(t, err)
	for _, picture := range pictures {
		require.True(t, strings.Contains(string(page), "dashboard/"+picture.Name()), picture.Name())
	}
}
