package browsertest_test

import (
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/operate/access"
	"github.com/durable-worker/durable-worker/operate/dashboard/browsertest/browser"
	"github.com/durable-worker/durable-worker/operate/dashboard/browsertest/scene"
	"github.com/durable-worker/durable-worker/store"
)

// streaming serves pages, and counts the streams that are open.
func streaming(t *testing.T, s *scene.Scene) (f *front, open, most *atomic.Int64) {
	f, open, most = serve(t), &atomic.Int64{}, &atomic.Int64{}
	f.begin(t, s.Operator, access.Func(func(*http.Request) (access.Who, error) { return access.Who{Name: "ada", Role: access.Operator}, nil }))
	pages := *f.pages.Load()
	counted := http.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/live" {
			most.Store(max(most.Load(), open.Add(1)))
			defer open.Add(-1)
		}
		pages.ServeHTTP(w, r)
	}))
	f.pages.Store(&counted)
	return f, open, most
}

// TestTwentyTabsShareAStream opens the pages in more tabs than a browser opens connections to
// a server, all of them in sight: each loads, each is updated, one has the stream. When that
// one is closed, or out of sight, another has it; when none is in sight, none has.
func TestTwentyTabsShareAStream(t *testing.T) {
	t.Parallel()
	s := queues(t, "mail")
	f, streams, most := streaming(t, s)
	tabs := []*browser.Browser{open(t)}
	show(t, tabs[0], f.url, "queues")
	for range 19 {
		tab, err := tabs[0].Another()
		require.NoError(t, err)
		t.Cleanup(tab.Close)
		show(t, tab, f.url, "queues")
		tabs = append(tabs, tab)
	}
	one := func() bool { return streams.Load() == 1 }
	require.Eventually(t, one, time.Minute, 10*time.Millisecond)
	require.Less(t, most.Load(), int64(6))
	_, err := s.Operator.As("grace").PauseUnusedQueue(t.Context(), "sync")
	require.NoError(t, err)
	for _, tab := range tabs {
		require.NoError(t, tab.Run(until(`document.querySelector('a[href*="name=sync"]') !== null`)))
	}
	for i, tab := range tabs[1:] {
		if i%2 == 0 {
			tab.Close()
		} else {
			require.NoError(t, tab.Run(asleep("true")))
		}
	}
	require.Eventually(t, one, time.Minute, 10*time.Millisecond, "the one tab that is in sight has it")
	require.NoError(t, tabs[0].Run(asleep("true")))
	require.Eventually(t, func() bool { return streams.Load() == 0 }, time.Minute, 10*time.Millisecond)
	require.NoError(t, tabs[2].Run(asleep("false")))
	require.Eventually(t, one, time.Minute, 10*time.Millisecond)
	require.Less(t, most.Load(), int64(6))
}

// TestNothingIsChosenAfterBack chooses a run, leaves the list, and comes back: the boxes and
// what is said of them agree, or a change would be made of what the reader does not see.
func TestNothingIsChosenAfterBack(t *testing.T) {
	t.Parallel()
	s, b := queues(t, "mail"), open(t)
	for range 3 {
		_, err := s.Operator.Enqueue(t.Context(), store.NewRun{ID: store.NewRunID(), Job: "mail", Queue: "mail", MaxAttempts: 1, Args: []byte("{}")})
		require.NoError(t, err)
	}
	show(t, b, s.URL, "runs?state=pending")
	const chosen = `document.querySelectorAll("tbody input[name=id]:checked").length`
	require.NoError(t, b.Run(chromedp.Click("tbody input[name=id]"), until(chosen+` === 1 && document.getElementById("chosen").textContent === "1 chosen"`)))
	require.NoError(t, b.Run(chromedp.Click(`.nav a[data-key="q"]`), chromedp.WaitVisible(`.nav a[data-key="q"][aria-current="page"]`),
		chromedp.NavigateBack(), chromedp.WaitVisible(`.nav a[data-key="r"][aria-current="page"]`)))
	require.NoError(t, b.Run(until(chosen+` === 0 ? document.getElementById("chosen").textContent === "none chosen, so all that match"
		: document.getElementById("chosen").textContent === "1 chosen"`)))
	is(t, b, chosen+` === 0`)
	is(t, b, `document.querySelector("[data-all]").checked === false && document.querySelector("input[name=all]").checked === false`)
	require.Empty(t, b.Said())
}
