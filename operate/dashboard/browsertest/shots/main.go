// Command shots makes pictures of the pages, with Chromium: those of docs/dashboard.md, or
// with -all every page at both widths and in both themes, to be examined.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/durable-worker/durable-worker/operate/dashboard/browsertest/browser"
	"github.com/durable-worker/durable-worker/operate/dashboard/browsertest/scene"
)

func main() {
	all := flag.Bool("all", false, "every page, at both widths and in both themes")
	only := flag.String("only", "", "with -all: pages whose name contains this")
	flag.Parse()
	shoot := docs
	if *all {
		shoot = func(ctx context.Context, s *scene.Scene) (map[string]browser.View, error) {
			return gallery(ctx, s, *only)
		}
	}
	if err := pictures(context.Background(), flag.Arg(0), shoot); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// pictures makes the pictures that choose names, by their file names.
func pictures(ctx context.Context, dir string, choose func(context.Context, *scene.Scene) (map[string]browser.View, error)) (err error) {
	s, err := scene.Full(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	if err := reported(ctx, s); err != nil {
		return err
	}
	views, err := choose(ctx, s)
	if err != nil {
		return err
	}
	b, err := browser.Open(ctx)
	if err != nil {
		return err
	}
	defer b.Close()
	for name, view := range views {
		picture, err := b.Picture(s.URL, view)
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), picture, 0o644) //nolint:gosec // pictures for everyone
		}
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

// reported waits until the workers have reported what they execute.
func reported(ctx context.Context, s *scene.Scene) error {
	for {
		survey, err := s.Operator.Survey(ctx)
		if err != nil || survey.Executing.N > 0 {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// docs are the pictures of docs/dashboard.md.
func docs(ctx context.Context, s *scene.Scene) (map[string]browser.View, error) {
	pages, err := s.Pages(ctx)
	if err != nil {
		return nil, err
	}
	return map[string]browser.View{
		"overview.webp":      {Path: "", Width: 1280, Height: 1240},
		"overview-dark.webp": {Path: "?range=24h", Width: 1280, Height: 1240, Dark: true},
		"runs.webp":          {Path: "runs", Width: 1280, Height: 860},
		"run.webp":           {Path: pages["run-dead"], Width: 1280, Height: 900},
		"problems.webp":      {Path: "problems", Width: 1280, Height: 620},
		"schedule.webp":      {Path: "schedules?name=nightly-report", Width: 1280, Height: 760, Dark: true},
		"limit.webp":         {Path: "limits?name=crm-customer&key=acme", Width: 1280, Height: 620},
		"phone.webp":         {Path: "problems", Width: 390, Height: 780},
	}, nil
}

// gallery is every page as every reader sees it.
func gallery(ctx context.Context, s *scene.Scene, only string) (map[string]browser.View, error) {
	pages, err := s.Pages(ctx)
	if err != nil {
		return nil, err
	}
	views := map[string]browser.View{}
	for name, path := range pages {
		if !strings.Contains(name, only) {
			continue
		}
		views[name+"-desk.png"] = browser.View{Path: path, Width: 1280, Height: 900, Whole: true}
		views[name+"-desk-dark.png"] = browser.View{Path: path, Width: 1280, Height: 900, Whole: true, Dark: true}
		views[name+"-phone.png"] = browser.View{Path: path, Width: 390, Height: 844, Whole: true}
		views[name+"-phone-dark.png"] = browser.View{Path: path, Width: 390, Height: 844, Whole: true, Dark: true}
	}
	for name := range views {
		if strings.HasSuffix(name, ".png") {
			view := views[name]
			view.PNG = true
			views[name] = view
		}
	}
	return views, nil
}
