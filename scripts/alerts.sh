#!/usr/bin/env bash
# Holds the alert rules to promtool, and /metrics of a real worker to promtool and to a
# real Prometheus, which reads OpenMetrics. Needs Debian's package prometheus; PROMETHEUS
# names the directory of its programs where they are not in PATH.
set -euo pipefail
cd "$(dirname "$0")/.."
PATH="${PROMETHEUS:-/usr/bin}:$PATH"
command -v promtool >/dev/null && command -v prometheus >/dev/null || {
	echo "It needs promtool and prometheus: apt-get install --no-install-recommends prometheus" >&2
	exit 1
}

work=$(mktemp -d)
children=()
finish() {
	for child in "${children[@]}"; do
		kill "$child" 2>/dev/null || true
		wait "$child" 2>/dev/null || true
	done
	rm -rf "$work"
}
trap finish EXIT

promtool check rules deploy/prometheus/durable.rules.yaml
promtool check config deploy/prometheus/prometheus.yaml
promtool test rules deploy/prometheus/durable.rules.test.yaml

# A free port each: the program that asked for one last is gone, and nothing else takes it so soon.
free() { python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }
worker=127.0.0.1:$(free)
server=127.0.0.1:$(free)
until_ok() { # what it waits for, and the command
	local what=$1
	shift
	for _ in $(seq 300); do
		"$@" >/dev/null 2>&1 && return 0
		sleep 0.2
	done
	echo "timed out: $what" >&2
	cat "$work"/*.log >&2
	return 1
}

CGO_ENABLED=0 go build -o "$work/durable-worker" ./cmd/durable-worker
export DURABLE_DATABASE_URL="sqlite:$work/durable.db" DURABLE_HTTP_ADDR=$worker
export DURABLE_EVENTS_WEBHOOK_URL="http://$worker/nowhere" DURABLE_EVENTS_WEBHOOK_SECRET=0123456789abcdef
"$work/durable-worker" >"$work/worker.log" 2>&1 &
children+=($!)
until_ok "the worker is ready" curl -sf "http://$worker/readyz"
"$work/durable-worker" enqueue sleep --args '{"for":"1ms"}' --wait >/dev/null
curl -sf "http://$worker/metrics" >"$work/metrics.txt"
promtool check metrics <"$work/metrics.txt"
echo "ok  promtool check metrics"

sed -e "s/localhost:8080/$worker/" -e 's/15s/1s/' deploy/prometheus/prometheus.yaml >"$work/prometheus.yaml"
cp deploy/prometheus/durable.rules.yaml "$work/"
prometheus --config.file="$work/prometheus.yaml" --storage.tsdb.path="$work/data" --web.listen-address="$server" \
	--log.level=warn >"$work/prometheus.log" 2>&1 &
children+=($!)
has() { curl -sfG "http://$server/api/v1/query" --data-urlencode "query=$1" | grep -q '"value":\['; }
until_ok "Prometheus has the runs under the label job" has 'durable_runs_settled_total{job="sleep",queue="default",outcome="success"} == 1'
until_ok "Prometheus has scraped all of it" has "scrape_samples_scraped == $(grep -vc '^#' "$work/metrics.txt") or scrape_samples_scraped > 100"
rules() { # every rule was evaluated, and none has failed
	curl -sf "http://$server/api/v1/rules" >"$work/rules.json"
	grep -q '"health":"ok"' "$work/rules.json" && ! grep -qE '"health":"(unknown|err)"' "$work/rules.json"
}
until_ok "Prometheus has evaluated the rules" rules
has 'ALERTS{alertstate="firing"}' && {
	echo "an alert fires in a clean run" >&2
	cat "$work/rules.json" >&2
	exit 1
}
echo "ok  Prometheus scrapes a worker, and no alert fires"
