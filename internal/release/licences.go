package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// allowed are the licences under which the program may contain the work of others:
// none of them asks for more than to be kept with it.
//
//nolint:gochecknoglobals // a table that never changes
var allowed = []string{"Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "ISC", "MIT", "public-domain"}

// licence is what a module of the program may be used under.
type licence struct {
	module, version string
	ids             []string // one of each text, as SPDX calls them; sorted
	texts           map[string]string
}

// licenceFile is the name of a file that holds a licence.
var licenceFile = regexp.MustCompile(`(?i)^(licen[cs]e|copying|notice)`)

// mainLicence is the name of the one that is the module's own.
var mainLicence = regexp.MustCompile(`(?i)^(licen[cs]e|copying)(\.\w+)?$`)

// licences are those of all modules that the program contains on any platform, Go's
// library included. It fails where a text is missing, or is none that is allowed.
func (r release) licences(ctx context.Context) ([]licence, error) {
	dirs := map[[2]string]string{}
	for _, p := range platforms() {
		printed, err := r.goTool(ctx, []string{"GOOS=" + p.os, "GOARCH=" + p.arch, "CGO_ENABLED=0"},
			"list", "-deps", "-json=Module", "./cmd/"+program)
		if err != nil {
			return nil, err
		}
		for packages := json.NewDecoder(strings.NewReader(printed)); ; {
			var p struct {
				Module *struct {
					Path, Version, Dir string
					Main               bool
				}
			}
			if err := packages.Decode(&p); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				return nil, err
			}
			if p.Module != nil && !p.Module.Main {
				dirs[[2]string{p.Module.Path, p.Module.Version}] = p.Module.Dir
			}
		}
	}
	goroot, err := r.goTool(ctx, nil, "env", "GOROOT")
	if err != nil {
		return nil, err
	}
	dirs[[2]string{"std"}] = strings.TrimSpace(goroot)
	var all []licence
	for _, m := range slices.SortedFunc(maps.Keys(dirs), func(a, b [2]string) int { return strings.Compare(a[0], b[0]) }) {
		one, err := readLicence(m[0], m[1], dirs[m])
		if err != nil {
			return nil, err
		}
		all = append(all, one)
	}
	return all, nil
}

// listing is the name of a file that gathers the licences of others.
var listing = regexp.MustCompile(`(?i)3rd|third`)

// readLicence reads the licences in a module's directory.
func readLicence(module, version, dir string) (licence, error) {
	l := licence{module: module, version: version, texts: map[string]string{}}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return l, err
	}
	for _, e := range entries {
		if e.IsDir() || !licenceFile.MatchString(e.Name()) {
			continue
		}
		text, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			return l, err
		}
		l.texts[e.Name()] = string(text)
		if listing.MatchString(e.Name()) {
			continue // of what the module's graph has, in the program or not; kept in full
		}
		ids := classify(string(text))
		l.ids = append(l.ids, ids...)
		if len(ids) == 0 && mainLicence.MatchString(e.Name()) {
			return l, fmt.Errorf("%s: %s is no licence that is known here", module, e.Name())
		}
	}
	slices.Sort(l.ids)
	l.ids = slices.Compact(l.ids)
	if len(l.ids) == 0 {
		return l, fmt.Errorf("%s: no licence in %s", module, dir)
	}
	for _, id := range l.ids {
		if !slices.Contains(allowed, id) {
			return l, fmt.Errorf("%s: %s is not among the licences that are allowed: %s", module, id, strings.Join(allowed, ", "))
		}
	}
	return l, nil
}

// classify recognises licences by what only they say. A file may hold several.
func classify(text string) (ids []string) {
	text = strings.Join(strings.Fields(text), " ")
	says := func(part string) bool { return strings.Contains(strings.ToLower(text), strings.ToLower(part)) }
	for id, found := range map[string]bool{
		"Apache-2.0":    says("Apache License") && says("Version 2.0"),
		"MIT":           says("Permission is hereby granted, free of charge, to any person obtaining a copy"),
		"ISC":           says("Permission to use, copy, modify, and/or distribute this software for any purpose with or without fee"),
		"BSD-3-Clause":  says("Redistributions in binary form must reproduce") && says("Neither the name"),
		"BSD-2-Clause":  says("Redistributions in binary form must reproduce") && !says("Neither the name"),
		"CC-BY-4.0":     says("Attribution 4.0 International") || says("CC BY 4.0"),
		"public-domain": says("dedicated to the public domain"),
		"MPL-2.0":       says("Mozilla Public License"),
		"GPL":           says("GNU GENERAL PUBLIC LICENSE"),
		"LGPL":          says("GNU LESSER GENERAL PUBLIC LICENSE"),
		"AGPL":          says("GNU AFFERO GENERAL PUBLIC LICENSE"),
	} {
		if found {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// thirdParty is what the archives carry: every licence in full.
func thirdParty(all []licence) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s contains the work of others, under these licences.\n", program)
	for _, l := range all {
		for _, name := range slices.Sorted(maps.Keys(l.texts)) {
			fmt.Fprintf(&b, "\n%s\n%s %s: %s\n\n%s\n", strings.Repeat("-", 80), l.module, l.version, name, strings.TrimSpace(l.texts[name]))
		}
	}
	return b.Bytes()
}

func (r release) printLicences(ctx context.Context) error {
	all, err := r.licences(ctx)
	if err != nil {
		return err
	}
	for _, l := range all {
		r.say("%s %s", l.module, strings.Join(l.ids, " AND "))
	}
	return nil
}
