package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// dist builds everything that a release publishes into a directory, which must not
// exist or be empty.
func (r release) dist(ctx context.Context, dir string) error {
	if entries, err := os.ReadDir(dir); err == nil && len(entries) > 0 {
		return fmt.Errorf("%s is not empty: remove it (make clean)", dir)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil { //nolint:gosec // what is published
		return err
	}
	licences, err := r.licences(ctx)
	if err != nil {
		return err
	}
	var sums []string
	for _, p := range platforms() {
		names, err := r.distOne(ctx, dir, p, licences)
		if err != nil {
			return err
		}
		for _, name := range names {
			text, err := os.ReadFile(filepath.Join(dir, name))
			if err != nil {
				return err
			}
			sum := sha256.Sum256(text)
			sums = append(sums, hex.EncodeToString(sum[:])+"  "+name)
			r.say("%s  %9d  %s", hex.EncodeToString(sum[:4]), len(text), name)
		}
	}
	slices.SortFunc(sums, func(a, b string) int { return strings.Compare(a[64:], b[64:]) })
	return os.WriteFile(filepath.Join(dir, "checksums.txt"), []byte(strings.Join(sums, "\n")+"\n"), 0o644) //nolint:gosec // what is published
}

// distOne makes the archive and the SBOM of one platform, and returns their names.
func (r release) distOne(ctx context.Context, dir string, p platform, licences []licence) ([]string, error) {
	scratch, err := os.MkdirTemp("", "durable-release-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(scratch) }()
	built := filepath.Join(scratch, p.file())
	if err := r.build(ctx, p, built); err != nil {
		return nil, err
	}
	text, err := os.ReadFile(built)
	if err != nil {
		return nil, err
	}
	base := fmt.Sprintf("%s_%s_%s_%s", program, strings.TrimPrefix(r.version, "v"), p.os, p.arch)
	content := []entry{{p.file(), text, 0o755}, {"THIRD-PARTY-LICENCES.txt", thirdParty(licences), 0o644}}
	for _, name := range []string{"LICENSE", "README.md", "CHANGELOG.md"} {
		text, err := os.ReadFile(filepath.Join(r.root, name))
		if err != nil {
			return nil, err
		}
		content = append(content, entry{name, text, 0o644})
	}
	made := r.made(ctx)
	pack, suffix := tarball, ".tar.gz"
	if p.os == "windows" {
		pack, suffix = zipped, ".zip"
	}
	archive, err := pack(base, content, made)
	if err != nil {
		return nil, err
	}
	sbom, err := r.sbom(built, licences, made)
	if err != nil {
		return nil, err
	}
	names := []string{base + suffix, base + ".cdx.json"}
	for i, text := range [][]byte{archive, sbom} {
		if err := os.WriteFile(filepath.Join(dir, names[i]), text, 0o644); err != nil { //nolint:gosec // what is published
			return nil, err
		}
	}
	return names, nil
}
