# Everything a developer or CI does here is a target of this file; `make` lists
# them. Only Go is needed, except where a target says otherwise. Written for two
# cores: the longest target, check, should end within twenty minutes.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

GO ?= go
BIN := $(CURDIR)/bin

# Every package that has tests. testdata is named by hand because ./... leaves
# out folders of that name.
PACKAGES := ./... $(if $(wildcard testdata/*_test.go),./testdata)

# How much make fuzz does for each target: a count, so that a run can be
# repeated and ends at the same place on a slow machine and on a fast one.
FUZZTIME ?= 2000x
# Only targets whose name matches: make fuzz FUZZ=ParseTail FUZZTIME=1000000x
FUZZ ?= .

# Arguments of make bench, bench-save and bench-compare:
# make bench-compare REF=main BENCH=Fetch COUNT=10
BENCH ?= .
COUNT ?= 6
BENCHTIME ?= 1s
REF ?= main

# Arguments of make lab: make lab LAB='--only fill --rounds 9'
LAB ?=

.PHONY: help
help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-18s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: demo
demo: ## Copy, list, fetch by offset and by time, verify: on bundled Kafka segments
	$(GO) run ./cmd/segtier demo

.PHONY: test
test: ## All tests, fuzz seeds included (Go alone, under two minutes)
	$(GO) test $(PACKAGES)

.PHONY: race
race: ## All tests under the race detector (needs a C compiler)
	$(GO) test -race -timeout=30m $(PACKAGES)

.PHONY: poison
poison: ## Tests of the read path with freed memory overwritten and leaked leases reported
	$(GO) test -tags segtier_poison -skip DoesNotAllocate ./cache ./fetch

.PHONY: tools
tools: $(BIN)/versitygw ## Build the S3 server that tests run against, into bin/

.PHONY: tools-soak
tools-soak: $(BIN)/weed ## Build SeaweedFS, the second S3 server, for make soak (minutes)

.PHONY: fuzz
fuzz: ## Run every fuzz target FUZZTIME times (default 2000x)
	GO="$(GO)" FUZZTIME="$(FUZZTIME)" FUZZ="$(FUZZ)" tools/fuzz $(PACKAGES)

.PHONY: soak
soak: tools tools-soak ## The long variants of the tests, and fuzzing a hundred times longer
	SEGTIER_SOAK=1 SEGTIER_GATEWAY=required $(GO) test -count=1 -timeout=120m $(PACKAGES)
	SEGTIER_SOAK=1 $(GO) test -race -count=1 -timeout=120m -run=TestModel ./fetch
	SEGTIER_SOAK=1 $(GO) test -tags=segtier_poison -count=1 -timeout=120m -run=TestModel ./fetch
	$(MAKE) fuzz FUZZTIME=200000x

.PHONY: bench
bench: ## Benchmarks, in the form that benchstat reads (BENCH=regexp COUNT=n)
	$(GO) test -run='^$$' -bench='$(BENCH)' -benchtime='$(BENCHTIME)' -benchmem -count=$(COUNT) $(PACKAGES)

.PHONY: bench-save
bench-save: $(BIN)/benchstat ## The same, kept in bin/bench under the commit's name, and summed up
	GO="$(GO)" BENCH='$(BENCH)' BENCHTIME='$(BENCHTIME)' COUNT='$(COUNT)' BIN="$(BIN)" tools/bench save $(PACKAGES)

.PHONY: bench-compare
bench-compare: $(BIN)/benchstat ## This tree beside REF (default main), in turns, by benchstat
	GO="$(GO)" BENCH='$(BENCH)' BENCHTIME='$(BENCHTIME)' COUNT='$(COUNT)' BIN="$(BIN)" tools/bench compare '$(REF)' $(PACKAGES)

.PHONY: lab
lab: ## Every figure of docs/benchmarks.md, beside peers (an hour; LAB='--only fill')
	$(GO) run ./bench/lab $(LAB)

.PHONY: lab-quick
lab-quick: ## One shortened round of everything: does it run, not how fast is it
	$(GO) run ./bench/lab --quick $(LAB)

.PHONY: peers
peers: ## Build and test the programs that the lab compares with (modules of their own)
	cd bench/peers && $(GO) vet ./... && $(GO) test ./...
	cd bench/peers/caching && $(GO) vet ./... && $(GO) test ./...

.PHONY: examples
examples: ## Build and test the examples that need modules of their own (a Kafka client)
	cd examples && $(GO) vet ./... && $(GO) test ./...

.PHONY: lint
lint: $(BIN)/golangci-lint ## Linters and formatting, by .golangci.yml
	$(BIN)/golangci-lint run $(PACKAGES)

.PHONY: fmt
fmt: $(BIN)/golangci-lint ## Format the code (gofumpt, gci)
	$(BIN)/golangci-lint fmt

.PHONY: tidy-check
tidy-check: ## Fail if go.mod or go.sum is not what go mod tidy would write
	$(GO) mod tidy -diff
	$(GO) mod verify

.PHONY: vet
vet: ## go vet, for the platforms we support (see README)
	GOOS=linux $(GO) vet $(PACKAGES)
	GOOS=darwin CGO_ENABLED=0 $(GO) vet $(PACKAGES)
	GOOS=linux GOARCH=arm64 CGO_ENABLED=0 $(GO) vet $(PACKAGES)

.PHONY: generate-testdata
generate-testdata: ## Write testdata anew with a real Kafka broker (needs JDK 17 and Maven)
	testdata/kafka/generate

.PHONY: exported
exported: ## Write the golden list of exported names anew
	$(GO) test ./internal/house -run TestExportedNames -update

# The tests come last, so that what CI sees at the end is their summary.
.PHONY: check
check: tools lint vet tidy-check race poison fuzz ## All that CI runs: lint, vet, tidy, race, poison, fuzz, demo, examples, tests with an S3 server
	$(MAKE) demo
	$(MAKE) examples
	SEGTIER_GATEWAY=required $(GO) test -count=1 $(PACKAGES)

.PHONY: clean
clean: ## Remove what was built
	rm -rf bin
	rm -f segtier *.test *.prof *.out

# A module of its own keeps the tools out of the module graph of those who
# import the library. Takes a minute the first time.
$(BIN)/golangci-lint: tools/go.mod tools/go.sum
	cd tools && $(GO) build -buildvcs=false -o $@ github.com/golangci/golangci-lint/v2/cmd/golangci-lint
	@touch $@

$(BIN)/benchstat: tools/go.mod tools/go.sum
	cd tools && $(GO) build -buildvcs=false -o $@ golang.org/x/perf/cmd/benchstat
	@touch $@

# Of another module again: a server shares no dependency with a linter.
$(BIN)/versitygw: tools/versitygw/go.mod tools/versitygw/go.sum
	cd tools/versitygw && $(GO) build -trimpath -buildvcs=false -o $@ github.com/versity/versitygw/cmd/versitygw
	@touch $@

$(BIN)/weed: tools/seaweedfs/go.mod tools/seaweedfs/go.sum
	cd tools/seaweedfs && $(GO) build -trimpath -buildvcs=false -o $@ github.com/seaweedfs/seaweedfs/weed
	@touch $@
