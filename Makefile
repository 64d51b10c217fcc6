# Waybill: build, prove, measure. Every target runs from a fresh clone.

GO ?= go

.PHONY: help build test short fuzz audit lint generate bench prepare clean

help: ## what there is
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/' | expand -t 12

build: ## ./bin/waybill
	$(GO) build -trimpath -o bin/waybill ./cmd/waybill

# The tests start their own PostgreSQL; prepare only makes sure that its binaries are there.
# Both runs happen even if the first fails, and go test speaks last. -count=1: the tests that build
# and run the program would otherwise be taken from the cache though the program has changed.
# The race detector watches everything but the inside of SQLite, which is C made into Go: it would
# find nothing of ours there, and make each statement fifteen times as slow. Left to itself it would
# also have each process sleep a second before it ends.
test: export GORACE ?= atexit_sleep_ms=0
test: prepare ## every test, with the race detector
	@failed=0; \
	tmp=$$(bash tests/tmpdir.sh); [ -z "$$tmp" ] || export TMPDIR=$$tmp; \
	for module in $$(find . -name go.mod -not -path '*/node_modules/*' -not -path './tools/*' | sort -r); do \
		echo "== $$(dirname $$module)"; \
		(cd $$(dirname $$module) && $(GO) test -race -gcflags='modernc.org/sqlite/lib=-race=false' -count=1 -timeout 14m ./...) || failed=1; \
	done; exit $$failed

short: ## the quick tests, without the race detector
	$(GO) test -short ./...

# Every fuzz function there is; internal/house holds the list to be complete. FUZZTIME is for each.
FUZZTIME ?= 1m
FUZZ = receive.FuzzPointer receive.FuzzJSONArray signature.FuzzVerifier internal/rawjson.FuzzScanner \
	internal/api.FuzzIntake internal/api.FuzzCursor internal/attempt.FuzzRetryAfter internal/egress.FuzzGuard_ParseURL \
	internal/outbox.FuzzParseEventID internal/filter.FuzzFilter

fuzz: ## what strangers write, in FUZZTIME=1m for each way to read it; nightly in CI
	@failed=0; \
	for target in $(FUZZ); do \
		echo "== $$target"; \
		$(GO) test ./$${target%.*} -run '^$$' -fuzz "^$${target##*.}\$$" -fuzztime $(FUZZTIME) || failed=1; \
	done; exit $$failed

# VULNDB: another database of vulnerabilities than vuln.go.dev, by URL.
audit: ## what was downloaded, what is known to be vulnerable in it, two builds alike; nightly in CI
	$(GO) mod verify
	$(GO) tool -modfile=tools/go.mod govulncheck $(if $(VULNDB),-db $(VULNDB)) ./...
	bash tools/reproducible.sh

lint: ## format, vet, modern idioms, staticcheck; golangci-lint where it is installed
	@unformatted=$$(gofmt -l $$(git ls-files '*.go')); \
	if [ -n "$$unformatted" ]; then echo "not formatted by gofmt:"; echo "$$unformatted"; exit 1; fi
	$(GO) vet ./...
	$(GO) fix -diff ./...
	$(GO) tool -modfile=tools/go.mod staticcheck ./...
	@if command -v golangci-lint >/dev/null; then golangci-lint run ./...; \
	else echo "golangci-lint is not installed; internal/house holds the import rules all the same"; fi

generate: ## the clients again, from the API's own document
	$(GO) run ./internal/clients

bench: build ## what this machine delivers, as ratios to its raw limit
	./bin/waybill bench

prepare: ## install what the tests need and this machine lacks
	@bash tests/prepare.sh

clean: ## remove what build made
	rm -rf bin
