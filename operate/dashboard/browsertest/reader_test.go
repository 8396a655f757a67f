package browsertest_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/operate"
	"github.com/durable-worker/durable-worker/operate/access"
	"github.com/durable-worker/durable-worker/operate/dashboard"
	"github.com/durable-worker/durable-worker/operate/dashboard/browsertest/browser"
	"github.com/durable-worker/durable-worker/operate/dashboard/browsertest/scene"
)

// queues makes pages of a store that has these queues and nothing else; all are paused.
func queues(t *testing.T, names ...string) *scene.Scene {
	s, err := scene.Empty()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	for _, name := range names {
		_, err := s.Operator.As("ada").PauseUnusedQueue(t.Context(), name)
		require.NoError(t, err)
	}
	return s
}

// show opens a page in a window of a desktop.
func show(t *testing.T, b *browser.Browser, base, path string) {
	require.NoError(t, b.Show(base, browser.View{Path: path, Width: 1280, Height: 900}))
}

// until waits for a condition in script.
func until(condition string) chromedp.Action {
	return chromedp.Poll(condition, nil, chromedp.WithPollingTimeout(50*time.Second))
}

// is fails unless a condition in script holds now.
func is(t *testing.T, b *browser.Browser, condition string) {
	t.Helper()
	var holds bool
	require.NoError(t, b.Run(chromedp.Evaluate(condition, &holds)), condition)
	require.True(t, holds, condition)
}

// visibleFocus is the condition that what has the focus is marked, itself or the field
// around it, and lies in the window.
const visibleFocus = `(() => {
	const at = document.activeElement, box = at.getBoundingClientRect();
	if (at === document.body) return false;
	const marked = (e) => { const s = getComputedStyle(e); return s.outlineStyle !== "none" && parseFloat(s.outlineWidth) > 0 || s.boxShadow !== "none"; };
	return (marked(at) || marked(at.closest("form, label") ?? at) || marked(at.nextElementSibling ?? at))
		&& box.right > 0 && box.left < innerWidth && box.bottom > 0 && box.top < innerHeight;
})()`

// TestAReaderNeedsNoMouse goes past the menu, through a page and a question, and back.
func TestAReaderNeedsNoMouse(t *testing.T) {
	t.Parallel()
	s, b := queues(t, "bulk", "mail", "sync"), open(t)
	show(t, b, s.URL, "queues")
	require.NoError(t, b.Run(chromedp.KeyEvent(kb.Tab)))
	is(t, b, `document.activeElement.matches(".skip")`)
	is(t, b, visibleFocus)
	require.NoError(t, b.Run(chromedp.KeyEvent(kb.Enter), until(`document.activeElement.id === "main"`)))
	require.NoError(t, b.Run(chromedp.KeyEvent(kb.Tab)))
	is(t, b, `document.querySelector("main").contains(document.activeElement)`)

	show(t, b, s.URL, "queues")
	for range 60 { // every element that Tab reaches
		var last bool
		require.NoError(t, b.Run(chromedp.KeyEvent(kb.Tab), chromedp.Evaluate(`document.activeElement === document.body`, &last)))
		if last {
			break
		}
		is(t, b, visibleFocus)
	}

	resume := `a[href*="name=mail"][href*="action=resume"]`
	require.NoError(t, b.Run(chromedp.Focus(resume), chromedp.KeyEvent(kb.Enter), chromedp.WaitVisible("dialog[open] form")))
	for range 8 { // the page behind the question is out of reach
		is(t, b, `document.querySelector("dialog").contains(document.activeElement) || document.activeElement === document.body`)
		require.NoError(t, b.Run(chromedp.KeyEvent(kb.Tab)))
	}
	require.NoError(t, b.Run(chromedp.KeyEvent(kb.Escape), until(`!document.querySelector("dialog").open`)))
	is(t, b, `document.activeElement.matches('`+resume+`')`)

	require.NoError(t, b.Run(chromedp.KeyEvent(kb.Enter), chromedp.WaitVisible("dialog[open] form")))
	for range 8 {
		var there bool
		if require.NoError(t, b.Run(chromedp.Evaluate(`document.activeElement.matches("dialog button.main")`, &there))); there {
			break
		}
		require.NoError(t, b.Run(chromedp.KeyEvent(kb.Tab)))
	}
	require.NoError(t, b.Run(chromedp.KeyEvent(kb.Enter), chromedp.WaitVisible("[data-notice]")))
	list, err := s.Operator.Queues(t.Context(), operate.Part{})
	require.NoError(t, err)
	for _, queue := range list.Queues {
		require.Equal(t, queue.Name != "mail", queue.Paused, queue.Name)
	}
	require.NoError(t, b.Run(chromedp.KeyEvent("g"), chromedp.KeyEvent("a"), chromedp.WaitVisible(`.nav a[data-key="a"][aria-current="page"]`)))
	require.Empty(t, b.Said())
}

// TestALiveUpdateKeepsTheFocus changes the list in which a link has the focus.
func TestALiveUpdateKeepsTheFocus(t *testing.T) {
	t.Parallel()
	s, b := queues(t, "bulk", "mail", "sync"), open(t)
	show(t, b, s.URL, "queues")
	resume := `a[href*="name=mail"][href*="action=resume"]`
	require.NoError(t, b.Run(chromedp.Focus(resume)))
	for _, name := range []string{"archive", "zoo"} { // rows before it and after it
		_, err := s.Operator.As("grace").PauseUnusedQueue(t.Context(), name)
		require.NoError(t, err)
		require.NoError(t, b.Run(until(`document.querySelector('a[href*="name=`+name+`"]') !== null`)))
		is(t, b, `document.activeElement.matches('`+resume+`')`)
	}
	require.Empty(t, b.Said())
}

// asleep makes a page believe that it is hidden, or is not any more.
func asleep(hidden string) chromedp.Action {
	return chromedp.Evaluate(`Object.defineProperty(document, "hidden", {configurable: true, get: () => `+hidden+`});
		document.dispatchEvent(new Event("visibilitychange"))`, nil)
}

// TestATabThatComesBackIsUpdated: without a stream, and with a clock that stands still, its
// return is the only reason to ask, also while the answer to an earlier question is on its way.
func TestATabThatComesBackIsUpdated(t *testing.T) {
	t.Parallel()
	s, b := queues(t, "mail"), open(t)
	require.NoError(t, b.Run(chromedp.ActionFunc(func(ctx context.Context) error {
		_, err := page.AddScriptToEvaluateOnNewDocument(`EventSource = undefined; { const now = performance.now(); performance.now = () => now; }`).Do(ctx)
		return err
	})))
	show(t, b, s.URL, "queues")
	pause := func(name string) {
		_, err := s.Operator.As("grace").PauseUnusedQueue(t.Context(), name)
		require.NoError(t, err)
	}
	shown := func(name string) chromedp.Action {
		return until(`document.querySelector('a[href*="name=` + name + `"]') !== null`)
	}
	for _, name := range []string{"sync", "bulk", "late"} {
		require.NoError(t, b.Run(asleep("true")))
		pause(name)
		require.NoError(t, b.Run(asleep("false"), shown(name)))
	}
	require.Empty(t, b.Said())
}

// front is a server whose pages can be replaced, and be away.
type front struct {
	url   string
	pages atomic.Pointer[http.Handler]
}

func serve(t *testing.T) *front {
	f := &front{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		pages := f.pages.Load()
		if pages == nil {
			panic(http.ErrAbortHandler)
		}
		(*pages).ServeHTTP(w, r)
	}))
	t.Cleanup(func() { server.CloseClientConnections(); server.Close() })
	f.url = server.URL + "/"
	return f
}

// begin serves the pages of an Operator to who knows a token.
func (f *front) begin(t *testing.T, op *operate.Operator, auth access.Auth) {
	pages, err := dashboard.New(op, dashboard.Config{Auth: auth})
	require.NoError(t, err)
	f.pages.Store(&pages)
}

// TestAServerThatIsAwayIsSaidAndForgotten: what is shown stays, is marked as old, and is
// new when the server is back. Beside the windows of other tests it once waited for a minute.
func TestAServerThatIsAwayIsSaidAndForgotten(t *testing.T) {
	s, b, f := queues(t, "mail"), open(t), serve(t)
	everyone := access.Func(func(*http.Request) (access.Who, error) { return access.Who{Name: "ada", Role: access.Operator}, nil })
	f.begin(t, s.Operator, everyone)
	show(t, b, f.url, "queues")
	require.NoError(t, b.Run(until(`document.getElementById("live").dataset.state === "live"`)))
	f.pages.Store(nil)
	require.NoError(t, b.Run(until(`document.body.classList.contains("stale") && !document.getElementById("lost").hidden`)))
	is(t, b, `document.getElementById("lost-text").textContent.includes("cannot be reached")`)
	is(t, b, `document.getElementById("live").dataset.state === "lost" && document.querySelector('a[href*="name=mail"]') !== null`)
	_, err := s.Operator.As("grace").PauseUnusedQueue(t.Context(), "sync")
	require.NoError(t, err)
	f.begin(t, s.Operator, everyone)
	require.NoError(t, b.Run(chromedp.Click("#lost-again"), until(`document.getElementById("lost").hidden && !document.body.classList.contains("stale")`)))
	is(t, b, `document.getElementById("live").dataset.state === "live" && document.querySelector('a[href*="name=sync"]') !== null`)
}

// TestASessionThatHasEndedIsSaid replaces the token under a session: what is being typed
// stays, and after the login the reader is where the reader was.
func TestASessionThatHasEndedIsSaid(t *testing.T) {
	t.Parallel()
	s, b, f := queues(t, "mail"), open(t), serve(t)
	login := func(token string) {
		require.NoError(t, b.Run(chromedp.WaitVisible(`[name="token"]`), chromedp.SendKeys(`[name="name"]`, "ada"), chromedp.SendKeys(`[name="token"]`, token),
			chromedp.Click("button.main"), chromedp.WaitVisible("#live")))
	}
	f.begin(t, s.Operator, access.Tokens("the-first-token-of-them", ""))
	show(t, b, f.url, "queues")
	is(t, b, `!document.body.textContent.includes("has ended")`)
	login("the-first-token-of-them")
	is(t, b, `location.pathname.endsWith("queues")`)

	require.NoError(t, b.Run(chromedp.Click(`a[href*="name=mail"][href*="action=resume"]`), chromedp.WaitVisible("dialog[open] form")))
	f.begin(t, s.Operator, access.Tokens("another-token-of-them", ""))
	require.NoError(t, b.Run(until(`document.body.classList.contains("stale")`)))
	is(t, b, `document.getElementById("lost-text").textContent.includes("Your session has ended") && document.querySelector("dialog").open`)
	require.NoError(t, b.Run(chromedp.KeyEvent(kb.Escape), chromedp.Click("#lost-again"), chromedp.WaitVisible(`[name="token"]`)))
	is(t, b, `document.querySelector("form.login [role=status]").textContent.includes("Your session has ended")`)
	login("another-token-of-them")
	is(t, b, `location.pathname.endsWith("queues") && document.querySelector('a[href*="name=mail"]') !== null`)
}

// TestAPageThatIsLeftIsNotAskedFor: between the click that deletes something and the answer,
// its page, which is about to be gone, is not fetched again.
func TestAPageThatIsLeftIsNotAskedFor(t *testing.T) {
	t.Parallel()
	s, b, f := queues(t, "mail"), open(t), serve(t)
	f.begin(t, s.Operator, access.Func(func(*http.Request) (access.Who, error) { return access.Who{Name: "ada", Role: access.Operator}, nil }))
	show(t, b, f.url, "queues")
	require.NoError(t, b.Run(chromedp.Click("#live-switch"), until(`document.getElementById("live").dataset.state === "paused"`)))
	pages := *f.pages.Load()
	asked := make(chan struct{}, 1)
	watched := http.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			select {
			case <-asked:
				t.Error("the page was fetched again")
			case <-time.After(time.Second): // it had the time
			}
		} else if r.URL.Path == "/queues" && r.Header.Get("Sec-Fetch-Dest") == "empty" {
			select {
			case asked <- struct{}{}:
			default:
			}
		}
		pages.ServeHTTP(w, r)
	}))
	f.pages.Store(&watched)
	require.NoError(t, b.Run(chromedp.Click(`a[href*="name=mail"][href*="action=resume"]`), chromedp.WaitVisible("dialog[open] form"),
		chromedp.Evaluate(`document.querySelector("dialog button.main").click(); document.getElementById("live-switch").click()`, nil)))
	require.NoError(t, b.Run(chromedp.WaitVisible("[data-notice]")))
}
