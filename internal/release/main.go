// Command release makes what a release consists of, and checks it, on one machine and
// without the network:
//
//	release dist      builds the program for every platform: archives, an SBOM for
//	                  each, third-party licences, checksums
//	release check     checks that a release can be made
//	release licences  lists the licences of what the program contains
//	release size      prints the size of the program by part
//	release notes     prints the changelog's section of a version
//
// docs/releasing.md says when to use which.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"regexp"
	"slices"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Stdout, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

// versionPattern is a version that may be tagged.
var versionPattern = regexp.MustCompile(`^v(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-[0-9A-Za-z.-]+)?$`)

// unreleased is the version of what is built between releases.
const unreleased = "v0.0.0-unreleased"

func run(ctx context.Context, out io.Writer, args []string) error {
	flags := flag.NewFlagSet("release", flag.ContinueOnError)
	version := flags.String("version", unreleased, "the version, as it is tagged")
	dir := flags.String("out", "dist", "the directory to write to")
	verbs := []string{"dist", "check", "licences", "size", "notes"}
	if len(args) == 0 || !slices.Contains(verbs, args[0]) {
		return fmt.Errorf("usage: release %v [-version v0.1.0] [-out dist]", verbs)
	}
	if err := flags.Parse(args[1:]); err != nil {
		return err
	}
	if !versionPattern.MatchString(*version) {
		return fmt.Errorf("version %q: want vMAJOR.MINOR.PATCH, perhaps with -rc.1", *version)
	}
	r := release{version: *version, root: ".", out: out}
	switch args[0] {
	case "dist":
		return r.dist(ctx, *dir)
	case "check":
		return r.check(ctx)
	case "licences":
		return r.printLicences(ctx)
	case "size":
		return r.size(ctx)
	default:
		return r.printNotes()
	}
}
