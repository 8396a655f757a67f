#!/usr/bin/env bash
# Keeps the worker program of a commit for the tests of a rolling deploy
# (internal/chaos/rolling_test.go): the sources of internal/chaos/rolling and of all
# packages of this module that it needs, in testdata/rolling/schema-N.tar.gz, where N
# is the version of the commit's schema. Run it with the commit of each release, or
# of the last one before a migration:
#
#   scripts/keep-program.sh v0.1.0
set -euo pipefail
commit=${1:?usage: scripts/keep-program.sh COMMIT}
cd "$(dirname "$0")/.."
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT

git archive "$commit" | tar -x -C "$tree"
if [ ! -d "$tree/internal/chaos/rolling" ]; then # before there was one
	mkdir -p "$tree/internal/chaos"
	cp -r internal/chaos/rolling "$tree/internal/chaos/"
fi
schema=$(basename "$(find "$tree/db/migrations" -name '[0-9]*.sql' | sort | tail -n 1)" | sed 's/^0*\([0-9]*\)_.*/\1/')
files=$(cd "$tree" && go list -deps -f '{{if and .Module .Module.Main}}{{range .GoFiles}}{{$.Dir}}/{{.}}
{{end}}{{range .IgnoredGoFiles}}{{$.Dir}}/{{.}}
{{end}}{{range .EmbedFiles}}{{$.Dir}}/{{.}}
{{end}}{{end}}' ./internal/chaos/rolling | grep -v '_test\.go$' | sed -e '/^$/d' -e "s|^$tree/||" | sort -u)
kept=internal/chaos/testdata/rolling/schema-$schema.tar.gz
# shellcheck disable=SC2086 # names without spaces
tar -C "$tree" --mtime=@0 --owner=0 --group=0 --numeric-owner --mode=0644 -cf - go.mod go.sum LICENSE $files | gzip -9n >"$kept"
echo "$kept: $(wc -c <"$kept") bytes, schema $schema, $(git rev-parse --short "$commit")"
