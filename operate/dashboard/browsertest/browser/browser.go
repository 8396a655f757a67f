// Package browser drives Chromium for tests and pictures of the dashboard.
package browser

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"sync"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/cdproto/target"
	"github.com/chromedp/chromedp"
)

// View is a page as one reader sees it.
type View struct {
	Path          string
	Width, Height int64
	Dark          bool
	NoScript      bool
	Whole, PNG    bool // of a picture: all of a long page; not a WebP
}

// Program is one Chromium. Browsers that it opens share nothing but the process.
type Program struct {
	ctx   context.Context
	close []context.CancelFunc
}

// Browser is a window of a reader, with cookies of its own. Its methods are for one
// goroutine.
type Browser struct {
	ctx     context.Context
	close   []context.CancelFunc
	program *Program
	profile cdp.BrowserContextID

	mu   sync.Mutex
	said []string // by the console
}

// Start starts Chromium.
func Start(ctx context.Context) (*Program, error) {
	if !installed() {
		return nil, errors.New("there is no Chromium: install it (on Debian: apt-get install chromium), the tests of the pages need it")
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.NoSandbox, chromedp.Flag("hide-scrollbars", true), chromedp.Flag("host-resolver-rules", "MAP * ~NOTFOUND , EXCLUDE 127.0.0.1"), chromedp.WSURLReadTimeout(time.Minute))
	allocated, end := chromedp.NewExecAllocator(ctx, options...)
	first, shut := chromedp.NewContext(allocated)
	p := &Program{ctx: first, close: []context.CancelFunc{shut, end}}
	return p, chromedp.Run(first)
}

// Close ends Chromium, and with it all windows.
func (p *Program) Close() {
	for _, end := range p.close {
		end()
	}
}

// Open starts Chromium for one window, and ends it with the window.
func Open(ctx context.Context) (*Browser, error) {
	p, err := Start(ctx)
	if err != nil {
		return nil, err
	}
	b, err := p.Open()
	if err == nil {
		b.close = append(b.close, p.Close)
	}
	return b, err
}

// Open opens a window. It has the focus, whatever other windows are open.
func (p *Program) Open() (*Browser, error) {
	program := p.executor()
	profile, err := target.CreateBrowserContext().Do(program)
	if err != nil {
		return nil, err
	}
	b, err := p.window(profile)
	if err != nil {
		return nil, err
	}
	b.close = append(b.close, func() { _ = target.DisposeBrowserContext(profile).Do(program) }) // with the program, if that has ended
	return b, nil
}

// Another opens another window of the same reader. All of them are in sight.
func (b *Browser) Another() (*Browser, error) { return b.program.window(b.profile) }

func (p *Program) executor() context.Context {
	return cdp.WithExecutor(p.ctx, chromedp.FromContext(p.ctx).Browser)
}

// window opens a window of a reader.
func (p *Program) window(profile cdp.BrowserContextID) (*Browser, error) {
	id, err := target.CreateTarget("about:blank").WithBrowserContextID(profile).WithNewWindow(true).Do(p.executor())
	if err != nil {
		return nil, err
	}
	tab, shut := chromedp.NewContext(p.ctx, chromedp.WithTargetID(id))
	b := &Browser{ctx: tab, close: []context.CancelFunc{shut}, program: p, profile: profile}
	chromedp.ListenTarget(tab, func(event any) {
		switch event := event.(type) {
		case *log.EventEntryAdded:
			b.note(fmt.Sprintf("%s: %s %s", event.Entry.Level, event.Entry.Text, event.Entry.URL))
		case *runtime.EventConsoleAPICalled:
			b.note("console: " + string(event.Type))
		case *runtime.EventExceptionThrown:
			b.note("exception: " + event.ExceptionDetails.Error())
		}
	})
	return b, chromedp.Run(tab, log.Enable(), emulation.SetFocusEmulationEnabled(true))
}

// installed reports whether there is a program that chromedp finds.
func installed() bool {
	for _, name := range []string{"headless-shell", "chromium", "chromium-browser", "google-chrome", "google-chrome-stable"} {
		if _, err := exec.LookPath(name); err == nil {
			return true
		}
	}
	return false
}

func (b *Browser) note(line string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.said = append(b.said, line)
}

// Close closes the window.
func (b *Browser) Close() {
	for _, end := range b.close {
		end()
	}
}

// Said returns what the console has said since the last call, each on a line.
func (b *Browser) Said() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	said := strings.Join(b.said, "\n")
	b.said = nil
	return said
}

// Show opens a page.
func (b *Browser) Show(base string, view View) error {
	scheme := "light"
	if view.Dark {
		scheme = "dark"
	}
	return chromedp.Run(b.ctx,
		emulation.SetDeviceMetricsOverride(view.Width, view.Height, 1, view.Width < 600),
		emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}, {Name: "prefers-reduced-motion", Value: "reduce"}}),
		emulation.SetScriptExecutionDisabled(view.NoScript),
		chromedp.Navigate(base+view.Path),
		chromedp.WaitVisible("main h1"),
	)
}

// Run does something with the page that is shown, within a minute.
func (b *Browser) Run(actions ...chromedp.Action) error {
	ctx, cancel := context.WithTimeout(b.ctx, time.Minute)
	defer cancel()
	return chromedp.Run(ctx, actions...)
}

// Picture is a page as a WebP, or a PNG.
func (b *Browser) Picture(base string, view View) (picture []byte, err error) {
	if err := b.Show(base, view); err != nil {
		return nil, err
	}
	if view.Whole {
		var height int64
		if err := b.Run(chromedp.Evaluate(`document.documentElement.scrollHeight`, &height), chromedp.ActionFunc(func(ctx context.Context) error {
			return emulation.SetDeviceMetricsOverride(view.Width, min(max(height, view.Height), 2600), 1, view.Width < 600).Do(ctx)
		})); err != nil {
			return nil, err
		}
	}
	err = b.Run(chromedp.Sleep(300*time.Millisecond), chromedp.ActionFunc(func(ctx context.Context) (err error) {
		shot := page.CaptureScreenshot().WithFormat(page.CaptureScreenshotFormatWebp).WithQuality(90)
		if view.PNG {
			shot = page.CaptureScreenshot().WithFormat(page.CaptureScreenshotFormatPng)
		}
		picture, err = shot.Do(ctx)
		return err
	}))
	return picture, err
}
