#!/usr/bin/env bash
# Reports known vulnerabilities in what the module calls, with govulncheck.
#   scripts/vuln.sh VERSION DATABASE
# The database is a URL, or file:///… of a directory of the same form. Exits 0: none,
# 3: found, 1: the check could not be made, and what it lacks.
set -euo pipefail

version=$1 database=$2

lacks() {
	cat >&2 <<-TEXT
		vuln: $1
		make vuln needs Go's vulnerability database: https://vuln.go.dev, or a copy of it. Without the network,
		bring https://vuln.go.dev/vulndb.zip, unzip it, and name the directory that has index/ and ID/:
		  make vuln VULNDB=file:///srv/vulndb
		Nothing was checked.
	TEXT
	exit 1
}

case $database in
file://*)
	for file in index/db.json index/modules.json; do
		[ -s "${database#file://}/$file" ] || lacks "${database#file://} has no $file"
	done
	;;
esac

programs=$(mktemp -d)
trap 'rm -rf "$programs"' EXIT
GOBIN=$programs GOFLAGS=-mod=mod go install "golang.org/x/vuln/cmd/govulncheck@$version" || lacks "govulncheck $version could not be built"

status=0
"$programs/govulncheck" -db "$database" ./... || status=$?
case $status in
0) echo "ok  vulnerabilities: none that is called ($database)" ;;
3) exit 3 ;; # it has said which
*) lacks "the database $database could not be read, or the module could not be loaded: see above" ;;
esac
