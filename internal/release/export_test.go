package main

import (
	"context"
	"io"
	"io/fs"
	"time"
)

// What the tests look at.
var (
	Run      = run
	Classify = classify
	Section  = section
	Allowed  = allowed
	ByPart   = byPart
)

// SizeCap is how large the program may be, in bytes.
const SizeCap = int64(sizeCap)

// Sources is a working copy without what is not of the module.
func Sources(root fs.FS) fs.FS { return sources{root} }

// Pack packs one file in both ways.
func Pack(name string, text []byte, made time.Time) (tar, zip []byte, err error) {
	files := []entry{{name, text, 0o755}}
	if tar, err = tarball("dir", files, made); err != nil {
		return nil, nil, err
	}
	zip, err = zipped("dir", files, made)
	return tar, zip, err
}

// ReadLicence reads the licences in a directory.
func ReadLicence(dir string) ([]string, error) {
	l, err := readLicence("example.com/m", "v1.0.0", dir)
	return l.ids, err
}

// Build builds the program for a platform, and describes it.
func Build(ctx context.Context, root, version, system, arch, to string, made time.Time) ([]byte, error) {
	r := release{version: version, root: root, out: io.Discard}
	if err := r.build(ctx, platform{system, arch}, to); err != nil {
		return nil, err
	}
	licences, err := r.licences(ctx)
	if err != nil {
		return nil, err
	}
	return r.sbom(to, licences, made)
}
