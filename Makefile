# What people type. `make` alone lists it.

SHELL       := bash
.SHELLFLAGS := -euo pipefail -c

GO    ?= go
# Tools are pinned in their own module and built without a C compiler, which is
# also quicker: sqlc then brings its parser as WebAssembly.
TOOL  := CGO_ENABLED=0 $(GO) tool -modfile=tools/go.mod

.DEFAULT_GOAL := help
.PHONY: alerts timed computed browser browser-quick large gallery screenshots help test quick modes verify format vet lint tidy generated generate vuln build dist size release-check workflows tag demo need clean bench bench-quick

help: ## list what there is
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# The race detector watches our code and the drivers, not the C code of SQLite that was
# translated to Go: it keeps its memory to itself, and watching it takes eight times as long.
RACE := -race -gcflags=modernc.org/sqlite/lib=-race=false -gcflags=modernc.org/libc/...=-race=false

# These parse every page many times over, break every statement in turn, store more runs
# than are counted, or run the store suite once more against a server that differs: the
# detector makes them up to ten times as dear, and what they execute is watched in others.
DEAR := ^(TestHostileTextsAreTexts|TestEveryPageIsReachedByRelativeLinks|TestOneStatementFails|TestCompleteIn_CutInEveryMessage|TestMoreRunsThanAreCountedSaySo|TestManyRunsAreCountedExactly|TestStoreInModes|TestStoreBehindATransactionPooler|TestStoreAtTheEndOf2028)$$

# These compute and start nothing concurrently: the detector has nothing to find in them.
PLAIN := internal/(admit|archtest|cron|release)

# They begin first, so that the last minutes are not theirs alone; two at a time, of which
# one computes while the other one waits for time to pass.
LONG := ./store/postgres ./durablecmd ./store/sqlite ./internal/chaos ./durable ./operate/dashboard ./operate/api ./store/backend

test: need ## every test (race detector, shuffled, real PostgreSQL), and verify; installs what is missing when root
	@failed=$$(mktemp); trap 'rm -f "$$failed"' EXIT; \
	FAILED="$$failed" $(MAKE) --no-print-directory -j2 timed computed || { cat "$$failed"; exit 1; }

# Tests that wait for something, two packages at a time: on two CPUs they leave some idle.
# `verify` vets all packages once, so `go test` does not vet each of them again.
timed:
	@scripts/test.sh $(RACE) -vet=off -ldflags=-w -shuffle=on -count=1 -timeout=30m -parallel=4 -skip='$(DEAR)' $(LONG) $$($(GO) list ./... | grep -vE '/$(PLAIN)$$')
	@scripts/test.sh -vet=off -ldflags=-w -shuffle=on -count=1 -timeout=20m -parallel=4 -run='$(DEAR)' ./store/postgres ./store/sqlite ./operate/dashboard
	@$(MAKE) --no-print-directory browser-quick

# What only computes takes what the others leave, and keeps none of them waiting.
computed:
	@nice -n 19 $(MAKE) --no-print-directory verify
	@nice -n 19 scripts/test.sh -vet=off -shuffle=on -count=1 -timeout=30m $$($(GO) list ./... | grep -E '/$(PLAIN)$$')

quick: need ## every test once, without the race detector and without verify
	@scripts/test.sh -shuffle=on -timeout=15m ./...

modes: need ## the whole store suite in every mode: publication, held snapshot, few rights, one connection, planted functions, the end of 2028
	@DURABLE_TEST_MODES=full scripts/test.sh -count=1 -timeout=30m -run='^TestStore' ./store/postgres

verify: format vet tidy generated lint measures ## gofmt, vet, mod tidy, sqlc diff, lint, and the measures of the packages

format: ## fail when a file is not formatted
	@files=$$(find . -name '*.go' -not -path '*/.*' -print0 | xargs -0 "$$($(GO) env GOROOT)/bin/gofmt" -l); \
	if [ -n "$$files" ]; then echo "not formatted (gofmt -w):"; echo "$$files"; exit 1; fi; \
	echo "ok  format"

vet: ## go vet
	@$(GO) vet ./... && echo "ok  vet"

measures: ## print the size of each package, and how many arrows between its files point up
	@$(GO) test ./internal/archtest -run '^TestMeasures$$' -v | sed -n 's/^ *measures_test.go:[0-9]*: //p'

lint: ## golangci-lint
	@$(TOOL) golangci-lint run --allow-parallel-runners ./... && echo "ok  lint"

tidy: ## fail when go.mod is not tidy
	@$(GO) mod tidy -diff && echo "ok  tidy"

generated: ## fail when the generated queries are not those of db/
	@$(GO) test -vet=off ./internal/archtest -run '$(BLOCKS)' >/dev/null || { echo "make generate: a block of a statement is not that of db/blocks"; exit 1; }
	@$(TOOL) sqlc diff && echo "ok  generated"

BLOCKS := ^TestBlocksOfSQLAreThoseOfTheirSources$$
generate: ## write db/blocks into the statements, and the generated queries from db/
	@$(GO) test -vet=off ./internal/archtest -run '$(BLOCKS)' -update
	@$(TOOL) sqlc generate

# Its database is at vuln.go.dev, or in a directory: docs/releasing.md says how to bring one.
#   make vuln VULNDB=file:///srv/vulndb
VULN   ?= v1.8.0
VULNDB ?= https://vuln.go.dev
vuln: ## look for known vulnerabilities in what is called (VULNDB=file:///… without the network)
	@scripts/vuln.sh $(VULN) "$(VULNDB)"

# What a release consists of, see docs/releasing.md. A release is made of a tag:
#   make tag VERSION=v0.1.0
VERSION ?= v0.0.0-unreleased
RELEASE := $(GO) run ./internal/release

release-check: workflows ## check that a release can be made: workflows, licences, every platform, size (VULNDB=file:///… too)
	@$(RELEASE) check -version "$(VERSION)"
	@if [ "$(VULNDB)" != https://vuln.go.dev ]; then $(MAKE) --no-print-directory vuln; else echo "--  vulnerabilities: make vuln, or VULNDB=file:///…"; fi

dist: ## build dist/: archives, SBOMs, licences and checksums of VERSION
	@$(RELEASE) dist -version "$(VERSION)"

size: ## print the size of the program by part
	@$(RELEASE) size

ACTIONLINT ?= v1.7.12
workflows: ## check the workflow files
	@CGO_ENABLED=0 $(GO) run github.com/rhysd/actionlint/cmd/actionlint@$(ACTIONLINT) -shellcheck= -pyflakes= .github/workflows/*.yml && echo "ok  workflows"

tag: ## tag VERSION, when everything is committed and the release check passes
	@[ -z "$$(git status --porcelain)" ] || { echo "commit everything first"; exit 1; }
	@$(MAKE) --no-print-directory release-check VERSION="$(VERSION)"
	@$(RELEASE) notes -version "$(VERSION)" | git tag -a "$(VERSION)" --cleanup=verbatim -F - && echo "tagged; now: git push origin $(VERSION)"

build: ## build bin/durable-worker, statically
	@CGO_ENABLED=0 $(GO) build -trimpath -o bin/durable-worker ./cmd/durable-worker

browser: need ## the pages in a real browser, at both widths and in both themes, and behind nginx (apt-get install nginx): some minutes
	@cd operate/dashboard/browsertest && $(GO) vet ./... && ../../../scripts/test.sh -count=1 -parallel=4 -timeout=15m ./...

browser-quick: need ## the same in short, as in CI: each page once
	@cd operate/dashboard/browsertest && $(GO) vet ./... && ../../../scripts/test.sh -short -count=1 -parallel=4 -timeout=5m .

RUNS ?= 1000000
large: need ## every page of a PostgreSQL with RUNS=1000000 runs, each within 100 ms; ten million take 10 GB
	@DURABLE_TEST_RUNS=$(RUNS) $(GO) test -v -count=1 -timeout 3h -run '^TestPagesOfManyRuns$$' ./operate/dashboard

gallery: ## a picture of every page, at both widths and in both themes, in DIR, to be looked at
	@cd operate/dashboard/browsertest && $(GO) run ./shots -all "$(abspath $(DIR))"

alerts: ## the alert rules in promtool, and a worker scraped by Prometheus: needs Debian's prometheus (PROMETHEUS=directory of its programs)
	@scripts/alerts.sh

screenshots: ## the pictures of docs/dashboard.md, made with chromium
	@cd operate/dashboard/browsertest && $(GO) run ./shots ../../../docs/dashboard

demo: ## see a worker work, on a database file of its own
	@$(GO) run ./cmd/durable-worker demo

bench: ## compare with River and asynq, every row three times (writes bench/bench.json)
	@cd bench && $(GO) run .

bench-quick: ## the headline ratios, in about a minute
	@cd bench && $(GO) run . -quick

need: ## find what the tests need, or install it when root
	@scripts/need.sh

clean: ## remove what was built
	@rm -rf bin dist
