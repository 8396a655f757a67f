// Command shots makes the pictures of docs/dashboard.md, with Chromium.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/durable-worker/durable-worker/operate/dashboard/browsertest/browser"
	"github.com/durable-worker/durable-worker/operate/dashboard/browsertest/scene"
	"github.com/durable-worker/durable-worker/store"
)

func main() {
	if err := shoot(context.Background(), os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func shoot(ctx context.Context, dir string) (err error) {
	s, err := scene.Full(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	for { // until the workers have reported what they execute
		survey, err := s.Operator.Survey(ctx)
		if err != nil {
			return err
		}
		if survey.Executing.N > 0 {
			break
		}
		time.Sleep(time.Second)
	}
	dead, err := s.Operator.Runs(ctx, store.Filter{States: []store.State{store.Dead}, Limit: 1})
	if err != nil {
		return err
	}
	b, err := browser.Open(ctx)
	if err != nil {
		return err
	}
	defer b.Close()
	for name, view := range map[string]browser.View{
		"overview":      {Path: "", Width: 1280, Height: 1240},
		"overview-dark": {Path: "?range=24h", Width: 1280, Height: 1240, Dark: true},
		"runs":          {Path: "runs", Width: 1280, Height: 860},
		"run":           {Path: "runs/" + dead.Runs[0].ID.String(), Width: 1280, Height: 900},
		"problems":      {Path: "problems", Width: 1280, Height: 620},
		"schedule":      {Path: "schedules?name=nightly-report", Width: 1280, Height: 760, Dark: true},
		"limit":         {Path: "limits?name=crm-customer&key=acme", Width: 1280, Height: 620},
		"phone":         {Path: "problems", Width: 390, Height: 780},
	} {
		picture, err := b.Picture(s.URL, view)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if err := os.WriteFile(filepath.Join(dir, name+".webp"), picture, 0o644); err != nil { //nolint:gosec // pictures for everyone
			return err
		}
	}
	return nil
}
