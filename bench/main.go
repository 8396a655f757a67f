// Command bench compares durable with River and asynq, side by side on the same
// server, through their public APIs only. docs/performance.md tells what is
// measured and how to read it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"
)

// options are what the command line says.
type options struct {
	rows, sides, output, redis, dir, profiles, plots string
	before                                           string
	settings                                         settings
	n, repetitions                                   int
	quick, statements, list                          bool
}

func main() {
	if len(os.Args) == 3 && os.Args[1] == childWord {
		if err := runChild(os.Args[2]); err != nil {
			fmt.Fprintln(os.Stderr, "child:", err)
			os.Exit(1)
		}
		return
	}
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	o := parse()
	measure := run
	if o.before != "" {
		measure = compare
	}
	err := measure(ctx, o, os.Stdout, os.Stderr)
	cancel()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func parse() options {
	var o options
	flag.StringVar(&o.rows, "rows", "", "regular expression: the rows to measure (default: those that are not long; with -quick the headlines)")
	flag.StringVar(&o.sides, "sides", "", "regular expression: the contenders to measure (default: all)")
	flag.IntVar(&o.n, "n", 0, "runs of a measurement (default 100000; with -quick 40000)")
	flag.IntVar(&o.repetitions, "reps", 0, "repetitions, alternating (default 3; with -quick 1)")
	flag.BoolVar(&o.quick, "quick", false, "the headline ratios in two minutes, roughly")
	flag.StringVar(&o.output, "o", "bench.json", "file for every sample as JSON; empty: none")
	flag.StringVar(&o.dir, "dir", "", "directory on the disk to measure (default: that of temporary files)")
	flag.StringVar(&o.redis, "redis", "", "redis-server to start (default: from PATH)")
	flag.StringVar(&o.profiles, "profiles", "", "directory for CPU profiles of the workers of drains (costs a few percent)")
	flag.StringVar(&o.plots, "plots", "", "directory for plots as SVG, of the rows that have some")
	flag.StringVar(&o.before, "before", "", "this program as built from an earlier version: measure both in turn (default rows: those of plain runs)")
	flag.Var(&o.settings, "set", "name=value of postgresql.conf, to try one out; may be repeated")
	flag.BoolVar(&o.statements, "statements", false, "print the dearest SQL statements of each drain")
	flag.BoolVar(&o.list, "list", false, "list the rows and end")
	flag.Parse()
	return o
}

// settings are given one by one on the command line.
type settings []string

// String is for package flag.
func (s *settings) String() string { return strings.Join(*s, " ") }

// Set is for package flag.
func (s *settings) Set(text string) error {
	*s = append(*s, text)
	return nil
}

// bench is one run of the benchmark.
type bench struct {
	server     *server
	redis      *redisServer // nil: none
	dir        string       // for files of ours
	profiles   string
	statements bool
	sequence   int
	progress   io.Writer
	drawn      map[string]*plot
}

// keep adds a line to a plot; the line of a later repetition replaces it.
func (b *bench) keep(p plot, l line) {
	if b.drawn == nil {
		b.drawn = map[string]*plot{}
	}
	if b.drawn[p.name] == nil {
		b.drawn[p.name] = &p
	}
	kept := b.drawn[p.name]
	kept.lines = append(slices.DeleteFunc(kept.lines, func(old line) bool { return old.name == l.name }), l)
}

// draw writes the plots.
func (b *bench) draw(dir string) error {
	var faults []error
	for _, p := range b.drawn {
		faults = append(faults, p.write(dir))
	}
	return errors.Join(faults...)
}

// headlines are the rows of -quick.
const headlines = "^(drain-default|drain-tuned|enqueue-1000|enqueue-single|latency|insert-and-work)$"

func run(ctx context.Context, o options, out, progress io.Writer) error {
	if o.rows == "" && o.quick {
		o.rows = headlines
	}
	if o.repetitions == 0 {
		o.repetitions = 3
		if o.quick {
			o.repetitions = 1
		}
	}
	list, err := chosen(rows(o.n, o.quick), o)
	if err != nil {
		return err
	}
	if o.list {
		for _, r := range list {
			fmt.Fprintf(out, "%-16s %s\n", r.name, r.title)
		}
		return nil
	}
	b := &bench{statements: o.statements, profiles: o.profiles, progress: progress}
	found := &result{Began: time.Now().UTC(), Machine: machine()}
	if err := b.open(ctx, o, found); err != nil {
		return err
	}
	defer b.close()
	found.Versions = versions(ctx, b.server)
	fmt.Fprintln(progress, "machine ", found.Machine)
	fmt.Fprintln(progress, "versions", found.Versions)
	for _, r := range list {
		found.Rows = append(found.Rows, b.row(ctx, r, o.repetitions, found))
		if ctx.Err() != nil {
			break
		}
	}
	found.table(out)
	if err := b.draw(o.plots); err != nil {
		return err
	}
	if o.output != "" {
		if err := found.write(o.output); err != nil {
			return err
		}
	}
	if ctx.Err() == nil && len(found.Faults) > 0 && !slices.Equal(found.Faults, []string{"asynq: " + errNoRedis.Error()}) {
		return errors.New("some rows could not be measured")
	}
	return ctx.Err()
}

// chosen leaves out the rows and sides that were not asked for.
func chosen(all []row, o options) ([]row, error) {
	wanted, err := regexp.Compile(o.rows)
	if err != nil {
		return nil, err
	}
	sides, err := regexp.Compile(o.sides)
	if err != nil {
		return nil, err
	}
	var list []row
	for _, r := range all {
		r.sides = slices.DeleteFunc(r.sides, func(s side) bool { return !sides.MatchString(s.name) })
		if wanted.MatchString(r.name) && (o.rows != "" || !r.long || o.list) && len(r.sides) > 0 {
			list = append(list, r)
		}
	}
	if len(list) == 0 {
		return nil, errors.New("no row is called so; -list names them")
	}
	return list, nil
}

// open starts the servers.
func (b *bench) open(ctx context.Context, o options, found *result) error {
	dir, err := os.MkdirTemp(o.dir, "bench-files-")
	if err != nil {
		return err
	}
	b.dir = dir
	if o.profiles != "" {
		if err := os.MkdirAll(o.profiles, 0o755); err != nil {
			return err
		}
	}
	if b.redis, err = startRedis(o.redis); err != nil {
		b.redis = nil
		found.Faults = append(found.Faults, "asynq: "+err.Error())
	}
	if b.server, err = startServer(ctx, o.dir, o.statements, o.settings); err != nil {
		b.close()
		return err
	}
	return nil
}

func (b *bench) close() {
	if b.server != nil {
		b.server.stop()
	}
	if b.redis != nil {
		b.redis.stop()
	}
	_ = os.RemoveAll(b.dir)
}

// row measures a row's sides in turn, again and again.
func (b *bench) row(ctx context.Context, r row, repetitions int, found *result) *rowResult {
	measured := &rowResult{Name: r.name, Title: r.title, figures: r.figures}
	sides := slices.DeleteFunc(slices.Clone(r.sides), func(s side) bool { return s.name == redis && b.redis == nil })
	for _, s := range sides {
		measured.Sides = append(measured.Sides, &sideResult{Name: s.name})
	}
	for repetition := range repetitions {
		for i, s := range sides {
			label := fmt.Sprintf("%s-%s-%d", r.name, s.name, repetition+1)
			began := time.Now()
			sample, err := s.measure(ctx, b, label)
			if ctx.Err() != nil {
				return measured
			}
			if err != nil {
				found.Faults = append(found.Faults, label+": "+err.Error())
				fmt.Fprintf(b.progress, "%s: %v\n", label, err)
				continue
			}
			measured.Sides[i].Samples = append(measured.Sides[i].Samples, sample)
			fmt.Fprintf(b.progress, "%-42s %s (%v in all)\n", label, sample.line(r.figures), time.Since(began).Round(100*time.Millisecond))
		}
	}
	return measured
}

func (s sample) line(figures []figure) string {
	text := ""
	for _, f := range figures {
		if value, ok := s[f.key]; ok {
			text += fmt.Sprintf("%s %s %s; ", f.title, digits(value), f.unit)
		}
	}
	return text
}

// noted prints the statements of a drain that has ended.
func (b *bench) noted(ctx context.Context, w *watch, label string) {
	if !b.statements || w.conn == nil || !w.server.statements {
		return
	}
	list, err := w.statements(ctx)
	if err != nil {
		fmt.Fprintln(b.progress, "statements:", err)
	}
	fmt.Fprintf(b.progress, "%s:\n   calls   exec ms    plans  plan ms      rows   WAL bytes\n", label)
	for _, s := range list {
		fmt.Fprintf(b.progress, "%8d %9.1f %8d %8.1f %9d %11.0f  %s\n", s.Calls, s.Milli, s.Plans, s.Plan, s.Rows, s.WAL, s.Text)
	}
}
