#!/usr/bin/env bash
# Runs go test with the given arguments (values of flags after a "=") and fails when a test
# failed or was skipped: a database test that does not run proves nothing. Lines about
# tests that began or passed are left out of what is shown.
#
# Many tests wait for real processes on a machine that may be busy with other things. So a
# few that fail are run once more, alone, and named as flaky when they pass then: that is to
# be looked into, and fails nothing. A data race, a panic, a package that did not build and
# more than three failures at a time are never tried again.
#
# The tests make and drop databases by the hundred. On Linux, where memory is plenty, their
# files are kept there: a file system in memory costs less, and does not wait for a disk.
# Nor is garbage collected as often then.
set -uo pipefail
most=3

# memory prints a directory of this run in memory, if 12 GiB are free there and programs
# may be started from it.
memory() {
	local dir free
	[ -d /dev/shm ] && free=$(awk '/^MemAvailable:/ { print $2 }' /proc/meminfo 2>/dev/null) && [ "${free:-0}" -ge 12582912 ] || return 1
	[ "$(df -kP /dev/shm | awk 'NR == 2 { print $4 }')" -ge 12582912 ] && dir=$(mktemp -d /dev/shm/durable-test-XXXXXX) || return 1
	chmod 1777 "$dir" && printf '#!/bin/sh\n' >"$dir/program" && chmod +x "$dir/program" && "$dir/program" 2>/dev/null || { rm -rf "$dir"; return 1; }
	echo "$dir"
}

# A program that the race detector watches sleeps for a second before it ends, for races of
# what is still running; hundreds of them end in these tests, and none by surprise.
export GORACE="${GORACE:-atexit_sleep_ms=10}"

log=$(mktemp) again=$(mktemp)
files=
if [ -z "${TMPDIR:-}" ] && files=$(memory); then
	export GOTMPDIR="${GOTMPDIR:-/tmp}" TMPDIR="$files" GOGC="${GOGC:-400}"
fi
trap 'rm -rf "$log" "$again" "$files"' EXIT

# run writes everything to a file, and shows what matters. The race detector needs cgo,
# which Go switches off when it once found no C compiler.
run() {
	local to=$1
	shift
	CGO_ENABLED=1 go test -v "$@" </dev/null 2>&1 | tee "$to" |
		grep --line-buffered -vE '^ *(=== (RUN|PAUSE|CONT|NAME) |--- PASS: )|^PASS$'
	return "${PIPESTATUS[0]}"
}

# count counts the tests of a file that ended in a way.
count() { grep -cE "^ *--- $2: " "$1"; }

# failed prints "package test" for each test of a file that failed; a package that failed
# without one has "-".
failed() {
	awk '/^--- FAIL: / { tests[++n] = $3 }
		/^(ok|FAIL|\?) *\t/ { if ($1 == "FAIL") { if (!n) print $2, "-"; for (i = 1; i <= n; i++) print $2, tests[i] }; n = 0 }' "$1"
}

# tell says which tests failed, and the first of what each printed. Several runs side by side
# append theirs to the file FAILED, for whoever shows them together at the end.
tell() {
	{
		failed "$log" | sed 's/^/failed: /'
		awk '/^ *=== (RUN|NAME|CONT) / { name = $3; next }
			/^ *--- FAIL: / { if (said[$3]) print "\n" $3 ":\n" said[$3]; next }
			/^ *(---|===) / { next }
			/^    / && lines[name] < 12 { lines[name]++; said[name] = said[name] substr($0, 1, 300) "\n" }' "$log"
		grep -E -A20 '^ *(WARNING: DATA RACE|panic: |fatal error: )' "$log" | head -60
	} | tee -a "${FAILED:-/dev/null}"
}

# retry runs the failed tests once more, package by package.
retry() {
	local flags=() package tests
	for flag; do
		case $flag in -run=* | -skip=* | -shuffle=*) ;; -*) flags+=("$flag") ;; esac
	done
	for package in $(failed "$log" | cut -d ' ' -f 1 | sort -u); do
		tests=$(failed "$log" | sed -n "s|^$package ||p" | paste -sd '|')
		echo "failed, and run once more: $package $tests"
		run "$again" "${flags[@]}" -run="^($tests)\$" "$package" || return 1
		echo "flaky: $package $tests"
	done
}

run "$log" "$@"
status=$?
printf 'passed %d, failed %d, skipped %d\n' "$(count "$log" PASS)" "$(count "$log" FAIL)" "$(count "$log" SKIP)"
if [ "$status" -ne 0 ] && [ "$(failed "$log" | wc -l)" -le "$most" ] && [ -n "$(failed "$log")" ] &&
	! failed "$log" | grep -q -- ' -$' && ! grep -qE '^ *(WARNING: DATA RACE|panic: |fatal error: )' "$log"; then
	retry "$@"
	status=$?
fi
[ "$status" -eq 0 ] || tell
if [ "$status" -eq 0 ] && [ "$(count "$log" SKIP)" -gt 0 ]; then
	echo "A skipped test is a failure here:"
	grep -E '^ *--- SKIP: ' "$log" | tee -a "${FAILED:-/dev/null}"
	status=1
fi
exit "$status"
