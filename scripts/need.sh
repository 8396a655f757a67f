#!/usr/bin/env bash
# Finds what the tests need beside Go: a C compiler, for the race detector, the
# PostgreSQL server's programs, from which the tests start clusters of their own
# (or, in DURABLE_TEST_DATABASE_URL, a server that is there), Redis's server,
# PgBouncer, libfaketime, to start a server at another date, Chromium, for the pages, and Python, for the
# client of the JSON API. What is missing is installed when this runs as root where apt-get exists; otherwise it
# is named, with the line to type.
set -euo pipefail

compiles() {
	local out
	out=$(mktemp) || return 1
	printf '#include <stdlib.h>\nint main(void) { return EXIT_SUCCESS; }\n' |
		"$(go env CC)" -x c -o "$out" - >/dev/null 2>&1
	local status=$?
	rm -f "$out"
	return $status
}

has_postgres() {
	local dir
	[ -n "${DURABLE_TEST_DATABASE_URL:-}" ] && return 0
	for dir in ${PATH//:/ } /usr/lib/postgresql/*/bin; do
		[ -x "$dir/initdb" ] && [ -x "$dir/postgres" ] && return 0
	done
	return 1
}

has_pooler() {
	command -v pgbouncer >/dev/null || [ -x /usr/sbin/pgbouncer ]
}

has_faketime() {
	local file
	for file in /usr/lib/*/faketime/libfaketime.so.1 /usr/lib*/faketime/libfaketime.so.1 /usr/local/lib/faketime/libfaketime.so.1; do
		[ -e "$file" ] && return 0
	done
	return 1
}

has_chromium() {
	local name
	for name in chromium chromium-browser google-chrome google-chrome-stable headless-shell; do
		command -v "$name" >/dev/null && return 0
	done
	return 1
}

packages=()
compiles || packages+=(gcc libc6-dev)
has_postgres || packages+=(postgresql)
command -v redis-server >/dev/null || packages+=(redis-server)
has_pooler || packages+=(pgbouncer)
has_faketime || packages+=(libfaketime)
has_chromium || packages+=(chromium)
command -v python3 >/dev/null || packages+=(python3)
[ ${#packages[@]} -eq 0 ] && exit 0

if ! command -v apt-get >/dev/null; then
	echo "The tests need a C compiler (for the race detector) and the server of PostgreSQL 14 or later, with initdb in PATH, redis-server, pgbouncer, libfaketime, chromium and python3." >&2
	exit 1
fi
if [ "$(id -u)" -ne 0 ]; then
	echo "The tests need packages that are not installed. Type:" >&2
	echo "  sudo apt-get update && sudo apt-get install -y ${packages[*]}" >&2
	exit 1
fi

echo "installing what the tests need: ${packages[*]}"
export DEBIAN_FRONTEND=noninteractive
log=$(mktemp)
trap 'rm -f "$log"' EXIT
quietly() {
	"$@" </dev/null >"$log" 2>&1 || {
		cat "$log" >&2
		exit 1
	}
}
quietly apt-get -o DPkg::Lock::Timeout=120 update
quietly apt-get -o DPkg::Lock::Timeout=120 install -y --no-install-recommends "${packages[@]}"
compiles && has_postgres && has_pooler && has_faketime && has_chromium && command -v redis-server >/dev/null && command -v python3 >/dev/null || {
	echo "installed ${packages[*]}, and the tests still lack a C compiler, a PostgreSQL server, redis-server, pgbouncer, libfaketime, chromium or python3" >&2
	exit 1
}
