package main

import (
	"context"
	"debug/buildinfo"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"
)

// plainRows are the rows whose runs use nothing but what every run uses.
const plainRows = "^(drain-tuned|drain-default|enqueue-1000|enqueue-single|fleet-20-100)$"

// compare measures rows with this program and with one that was built from an earlier version of
// the tree, in turn, each with a server of its own.
func compare(ctx context.Context, o options, out, progress io.Writer) error {
	if o.rows == "" {
		o.rows = plainRows
	}
	if o.repetitions == 0 {
		o.repetitions = 5
	}
	o.sides = "^" + ours + "$"
	list, err := chosen(rows(o.n, o.quick), o)
	if err != nil {
		return err
	}
	own, err := os.Executable()
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp(o.dir, "bench-before-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	found := &result{Began: time.Now().UTC(), Machine: machine(), Versions: map[string]string{}}
	for _, r := range list {
		for i := range r.figures {
			r.figures[i].ratio, r.figures[i].bound = 0, 0
		}
		merged := &rowResult{Name: r.name, Title: r.title, figures: r.figures, Sides: []*sideResult{{Name: "this"}, {Name: "before"}}}
		found.Rows = append(found.Rows, merged)
		for repetition := range o.repetitions {
			for turn := range merged.Sides {
				i := (repetition + turn) % len(merged.Sides) // neither is always the first
				one, err := other([]string{own, o.before}[i], o, r.name, dir).measure(ctx, progress)
				if err != nil {
					return fmt.Errorf("%s, %s: %w", r.name, merged.Sides[i].Name, err)
				}
				merged.Sides[i].Samples = append(merged.Sides[i].Samples, one.Rows[0].Sides[0].Samples...)
				found.Versions[merged.Sides[i].Name] = revision([]string{own, o.before}[i])
			}
		}
	}
	found.table(out)
	if o.output == "" {
		return nil
	}
	return found.write(o.output)
}

// revision is the commit from which a program was built.
func revision(path string) string {
	info, err := buildinfo.ReadFile(path)
	if err != nil {
		return ""
	}
	for _, setting := range info.Settings {
		if setting.Key == "vcs.revision" {
			return setting.Value
		}
	}
	return ""
}

// program is one measurement in another process.
type program struct {
	path, output string
	arguments    []string
}

func other(path string, o options, row, dir string) program {
	p := program{path: path, output: filepath.Join(dir, "one.json")}
	p.arguments = []string{"-rows", "^" + row + "$", "-sides", o.sides, "-reps", "1", "-o", p.output, "-n", strconv.Itoa(o.n), "-dir", o.dir}
	if o.quick {
		p.arguments = append(p.arguments, "-quick")
	}
	for _, setting := range o.settings {
		p.arguments = append(p.arguments, "-set", setting)
	}
	return p
}

func (p program) measure(ctx context.Context, progress io.Writer) (*result, error) {
	process := exec.CommandContext(ctx, p.path, p.arguments...)
	process.Stderr = progress
	process.Cancel = func() error { return process.Process.Signal(os.Interrupt) }
	process.WaitDelay = time.Minute
	if err := process.Run(); err != nil {
		return nil, err
	}
	text, err := os.ReadFile(p.output)
	if err != nil {
		return nil, err
	}
	var one result
	if err := json.Unmarshal(text, &one); err != nil {
		return nil, err
	}
	if len(one.Rows) != 1 || len(one.Rows[0].Sides) != 1 || len(one.Rows[0].Sides[0].Samples) == 0 {
		return nil, fmt.Errorf("%s has measured nothing: %v", p.path, one.Faults)
	}
	return &one, nil
}
