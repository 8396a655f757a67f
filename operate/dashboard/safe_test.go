package dashboard_test

import (
	"bufio"
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/lock"
	"github.com/durable-worker/durable-worker/store"
)

// hostile are texts that pages must show and never obey.
var hostile = []string{
	`<script>alert(1)</script>`, `"onmouseover="alert(2)`, `'onfocus='alert(3)`, `javascript:alert(4)`, `{{.}}`, `</textarea><svg onload=alert(5)>`,
	"\u202egnp.exe", "\x1b[31mred", "👩\u200d💻", "=cmd|' /C calc'!A0", "\r\nSet-Cookie: a=b",
}

// elements are the names of the elements in a page, in order.
var elements = regexp.MustCompile(`<[a-zA-Z/][a-zA-Z0-9]*`)

// shape is what a page is made of: its elements, whatever their texts.
func shape(body string) string {
	return strings.Join(elements.FindAllString(body, -1), " ")
}

// unsafe are characters that a page must not have: they are not seen, or change the
// order of what is read.
var unsafe = regexp.MustCompile("[\x00-\x08\x0b-\x1f\x7f-\u009f\u200b-\u200f\u202a-\u202e\u2066-\u2069\u2028\u2029]")

func TestHostileTextsAreTexts(t *testing.T) {
	twin := newSite(t, engines["memory"](t))
	plain := fill(t, twin.db, "harmless")
	all := strings.Join(hostile, " ")
	for name, text := range map[string]string{"all": all, "up": "..", "encoded up": "%2e%2e", "path": "a/b?c#d", "long": strings.Repeat("W", 8<<10)} {
		t.Run(name, func(t *testing.T) { showsAsText(t, "memory", text, twin, plain) })
	}
	t.Run("sqlite", func(t *testing.T) { showsAsText(t, "sqlite", all, twin, plain) })
}

// showsAsText stores a text in every field, and requires that the pages have the same
// elements as with a harmless one.
func showsAsText(t *testing.T, engine, text string, twin *site, plain filled) {
	s := newSite(t, engines[engine](t))
	made := fill(t, s.db, text)
	if _, err := s.op.As("eve").Cancel(t.Context(), text, made.later); err != nil {
		require.ErrorIs(t, err, store.ErrInvalid, "a reason is text of a bounded length")
	}
	everywhere(t, s, text)
	for path, body := range crawl(s) {
		if strings.HasPrefix(path, "audit.csv") { // not HTML
			require.False(t, unsafe.MatchString(body), path)
			continue
		}
		if strings.HasPrefix(path, "assets/") {
			continue
		}
		require.False(t, unsafe.MatchString(body), "%s has %q", path, unsafe.FindString(body))
		for _, raw := range []string{"<script>alert", "<svg onload", `"onmouseover=`, `href="javascript:`, "'onfocus='"} {
			require.False(t, strings.Contains(body, raw), "%s has %s", path, raw)
		}
	}
	for ours, theirs := range map[store.RunID]store.RunID{made.dead: plain.dead, made.succeeded: plain.succeeded} {
		mine, other := mainOf(s.get("runs/"+ours.String())), mainOf(twin.get("runs/"+theirs.String()))
		require.Equal(t, withoutSpans(shape(other)), withoutSpans(shape(mine)))
	}
}

// everywhere stores a text in the fields that fill leaves out: names of jobs, queues,
// schedules, workers, locks and their owners, keys, metadata, keys of limits, reasons and the
// names of those who change something. What a field refuses is refused as invalid.
func everywhere(t *testing.T, s *site, text string) {
	ctx := t.Context()
	short := strings.ToValidUTF8(text[:min(len(text), 100)], "")
	stored := 0
	accepted := func(err error) {
		if err == nil {
			stored++
			return
		}
		require.True(t, errors.Is(err, store.ErrInvalid) || errors.Is(err, lock.ErrInvalid), err)
	}
	client := durable.NewClient(s.db)
	plain := strings.Map(func(r rune) rune {
		if r < 0x20 || r == 0x7f {
			return -1
		}
		return r
	}, short)
	names := []string{text, short, plain}
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		odd := durable.NewJob[note](name, durable.OnQueue(name))
		for _, run := range []store.NewRun{
			odd.New(note{text}), durable.NewJob[note]("unserved").New(note{text}, durable.Unique(name)),
			durable.NewJob[note]("unserved").New(note{text}, durable.Metadata(map[string]string{name: name})),
			durable.NewJob[note]("limited", durable.OnQueue("legacy"), durable.Limited(durable.NewLimit("api", durable.Semaphore(1)), durable.KeyOf("{text}"))).New(note{name}),
		} {
			_, err := client.Enqueue(ctx, run)
			accepted(err)
		}
		_, err := s.op.As(name).SaveSchedule(ctx, store.Schedule{Name: name, Rule: store.Every(time.Hour), Job: name, Queue: name, Args: []byte("{}"), MaxAttempts: 1})
		accepted(err)
		_, err = s.op.As(name).PauseUnusedQueue(ctx, name)
		accepted(err)
		_, err = s.db.ReportWorker(ctx, store.WorkerReport{Worker: store.WorkerID{Name: name, Instance: uuid.New()}, Number: 1,
			Presence: store.Presence{Version: name, Queues: []string{"mail"}, Jobs: []string{"fine"}, Every: store.Duration(time.Minute)}})
		accepted(err)
		_, err = lock.NewLocker(s.db.Locks(), lock.LockerConfig{Owner: short}).TryAcquire(ctx, name, lock.Terms{Terms: lease.Terms{Duration: time.Hour}})
		accepted(err)
	}
	require.GreaterOrEqual(t, stored, 5, "keys, metadata, keys of limits, workers and locks take any text")
}

// mainOf is the content of a page, without its frame.
func mainOf(body string) string {
	_, rest, _ := strings.Cut(body, "<main")
	content, _, _ := strings.Cut(rest, "</main>")
	return content
}

// withoutSpans leaves the colors of JSON out: their number depends on the text.
func withoutSpans(shape string) string {
	return strings.ReplaceAll(strings.ReplaceAll(shape, "</span ", ""), "<span ", "")
}

func TestPagesForbidWhatTheyDoNotNeed(t *testing.T) {
	s := newSite(t, engines["memory"](t))
	a := s.do("GET", "", nil)
	csp := a.header.Get("Content-Security-Policy")
	for _, part := range []string{"default-src 'none'", "script-src 'self'", "style-src 'self'", "form-action 'self'", "frame-ancestors 'none'", "base-uri 'none'",
		"require-trusted-types-for 'script'"} {
		require.Contains(t, csp, part)
	}
	require.Equal(t, "no-store", a.header.Get("Cache-Control"))
	require.Equal(t, "same-origin", a.header.Get("Referrer-Policy"))
	lacks(t, a.body, "style=", "<style", "onclick=")
	require.Equal(t, 0, strings.Count(a.body, "<script>"))
	for _, m := range regexp.MustCompile(`"\./(assets/[^"]+)"`).FindAllStringSubmatch(a.body, -1) {
		file := s.do("GET", m[1], nil)
		require.Equal(t, 200, file.status, m[1])
		require.Contains(t, file.header.Get("Cache-Control"), "immutable")
	}
}

func TestOtherOriginsChangeNothing(t *testing.T) {
	db := engines["memory"](t)
	made := fill(t, db, "x")
	s := newSite(t, db)
	for _, header := range []http.Header{{"Sec-Fetch-Site": {"cross-site"}}, {"Origin": {"https://evil.example"}}} {
		r := httptest.NewRequest(http.MethodPost, "http://ops.example"+mount+"/runs/change", strings.NewReader(form("action", "cancel", "id", made.later.String()).Encode()))
		r.Header = header.Clone()
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		w := httptest.NewRecorder()
		s.handler.ServeHTTP(w, r)
		require.Equal(t, 403, w.Code)
		require.Equal(t, store.Pending, s.state(made.later))
	}
}

func TestReadingChangesNothing(t *testing.T) {
	db := engines["sqlite"](t)
	made := fill(t, db, "x")
	s := newSite(t, db)
	before, err := s.op.Changes(t.Context(), store.ChangeFilter{})
	require.NoError(t, err)
	crawl(s)
	after, err := s.op.Changes(t.Context(), store.ChangeFilter{})
	require.NoError(t, err)
	require.Equal(t, before, after)
	require.Equal(t, store.Pending, s.state(made.later))
}

// openStream opens the stream of hints on a real connection.
func openStream(ctx context.Context, t *testing.T, s *site) *bufio.Scanner {
	server := httptest.NewServer(s.handler)
	t.Cleanup(server.Close)
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL+mount+"/live", nil)
	require.NoError(t, err)
	answer, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	t.Cleanup(func() { _ = answer.Body.Close() })
	require.Equal(t, "text/event-stream", answer.Header.Get("Content-Type"))
	return bufio.NewScanner(answer.Body)
}
