#!/usr/bin/env bash
# Runs go test with the given arguments and fails when a test failed or was
# skipped: a database test that does not run proves nothing. Lines about tests
# that began or passed are left out of what is shown.
set -uo pipefail

log=$(mktemp)
trap 'rm -f "$log"' EXIT
# The race detector needs cgo, which Go switches off when it once found no C compiler.
CGO_ENABLED=1 go test -v "$@" </dev/null 2>&1 | tee "$log" |
	grep --line-buffered -vE '^ *(=== (RUN|PAUSE|CONT|NAME) |--- PASS: )|^PASS$'
status=${PIPESTATUS[0]}

count() { grep -cE "^ *--- $1: " "$log"; }
printf 'passed %d, failed %d, skipped %d\n' "$(count PASS)" "$(count FAIL)" "$(count SKIP)"
if [ "$status" -eq 0 ] && [ "$(count SKIP)" -gt 0 ]; then
	echo "A skipped test is a failure here:"
	grep -E '^ *--- SKIP: ' "$log"
	status=1
fi
exit "$status"
