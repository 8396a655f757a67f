package main

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
)

// check makes a release as it will be made, somewhere else, and examines it.
func (r release) check(ctx context.Context) error {
	scratch, err := os.MkdirTemp("", "durable-release-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(scratch) }()
	steps := []struct {
		name string
		do   func() error
	}{
		{"changelog", func() error {
			if r.version == unreleased {
				return nil
			}
			_, err := r.notes()
			return err
		}},
		{"licences", func() error { _, err := r.licences(ctx); return err }},
		{"every platform", func() error { return r.dist(ctx, filepath.Join(scratch, "dist")) }},
		{"version", func() error { return r.stamped(ctx, scratch) }},
		{"reproducible", func() error { return r.reproducible(ctx, scratch) }},
		{"size", func() error { return r.size(ctx) }},
	}
	var failed []error
	for _, step := range steps {
		if err := step.do(); err != nil {
			failed = append(failed, fmt.Errorf("%s: %w", step.name, err))
			continue
		}
		r.say("ok  %s", step.name)
	}
	return errors.Join(failed...)
}

// stamped wants the program to say the version of the release.
func (r release) stamped(ctx context.Context, scratch string) error {
	here := platform{runtime.GOOS, runtime.GOARCH}
	built := filepath.Join(scratch, here.file())
	if err := r.build(ctx, here, built); err != nil {
		return err
	}
	said, err := r.command(ctx, nil, built, "version")
	if err != nil {
		return err
	}
	if !strings.Contains(said, " "+r.version+" ") {
		return fmt.Errorf("the program says %q, and was built as %s", said, r.version)
	}
	return nil
}

// reproducible builds the program again, from a copy of the sources in another
// directory and with nothing from the cache, and wants the same bytes.
func (r release) reproducible(ctx context.Context, scratch string) error {
	there := release{version: r.version, root: filepath.Join(scratch, "copy"), out: r.out}
	if err := os.CopyFS(there.root, sources{os.DirFS(r.root)}); err != nil {
		return err
	}
	here := platform{runtime.GOOS, runtime.GOARCH}
	var sums [2][sha256.Size]byte
	for i, one := range []release{r, there} {
		built := filepath.Join(scratch, fmt.Sprintf("build-%d", i))
		env := []string{}
		if i == 1 {
			env = append(env, "GOCACHE="+filepath.Join(scratch, "cache"))
		}
		if err := one.build(ctx, here, built, env...); err != nil {
			return err
		}
		text, err := os.ReadFile(built)
		if err != nil {
			return err
		}
		sums[i] = sha256.Sum256(text)
		r.say("%x  %s", sums[i][:8], here)
	}
	if sums[0] != sums[1] {
		return errors.New("two builds of the same sources differ")
	}
	return nil
}
