# make demo        three nodes, load, faults, verdict; needs only Go and a network
# make build       bin/trireme alone
# make package     .deb, .rpm, tarball and Helm chart in dist; make package-test installs them in a throw-away root
# make manual      docs/cli.md and the man pages
# make test        everything a change must pass (.ci/run calls it)
# make mutants     breaks each rule on purpose: what notices?
# make bench       Trireme beside its rivals, a short run of every suite (SUITES="cpu jitter": of some), with a report
# make bench-full  the same at full size: days
# make verify      faults against a real cluster for SOAK_HOURS, and the report (docs/safety)
# make fuzz        every fuzz target for FUZZ_TIME (default 20s), with a table
# make soak        SOAK_HOURS (default 6) of everything that is to find a lost transaction, a leak or a crash, with a summary
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
export PATH := $(PATH):/usr/local/go/bin

# Flags of the demo: make demo ARGS="--nodes 5 --duration 120s"
ARGS ?=
SOAK_HOURS ?= 6
SOAK ?=
FUZZ_TIME ?= 20s
# Where the program goes; GOARCH=arm64 makes it for another machine.
BIN ?= bin/trireme
# Suites to measure: make bench SUITES="topologies cpu" ARGS="--threads 64"
SUITES ?= all
STATICCHECK := go run honnef.co/go/tools/cmd/staticcheck

.PHONY: all build package package-test manual demo test lint unit mutants mutants-short integration bench bench-full verify fuzz soak clean

all: build

# Static, so that one file can be copied to any host.
build:
	@scripts/deps.sh build
	@path=$$(scripts/commit-path.sh); commit=$$(git describe --always --dirty --abbrev=40 --exclude '*' 2>/dev/null || true); \
	CGO_ENABLED=0 go build -trimpath -ldflags "$(LDFLAGS) -X trireme/internal/campaign.commitPath=$$path -X trireme/internal/campaign.revision=$$commit" -o $(BIN) ./cmd/trireme

# dist/: .deb, .rpm, tarball, Helm chart.
package:
	@scripts/deps.sh build
	@scripts/package.sh

# Installs, upgrades, removes and purges what is in dist, in a throw-away root. Needs root.
package-test: package
	@scripts/deps.sh package
	@scripts/package-test.sh

# docs/cli.md and, in bin/man, the man pages: what --help says.
manual: build
	bin/trireme manual --markdown >docs/cli.md
	bin/trireme manual bin/man

demo: build
	@bin=$$(scripts/mysql.sh) && MYSQLD=$$bin/mysqld exec bin/trireme demo $(ARGS)

test: lint unit mutants-short integration

lint:
	@scripts/deps.sh build
	@bad=$$(gofmt -l $$(git ls-files -co --exclude-standard -- '*.go')); \
	if [ -n "$$bad" ]; then echo "not formatted (run gofmt -w):"; echo "$$bad"; exit 1; fi
	go vet ./...
	$(STATICCHECK) ./...

# Packages whose tests start real servers run one at a time, so that two cores are enough; all others side by side. They are known by how they ask for mysqld (package needs).
sources = git ls-files -co --exclude-standard -- '*_test.go'
server_packages = $(sources) | xargs grep -lE 'needs\.(MySQL|Tool)\(|TRIREME_REQUIRE_MYSQL|MYSQLD' | xargs -n 1 dirname | sort -u | sed 's,^,./,'
unit_packages = $(sources) | xargs -n 1 dirname | sort -u | sed 's,^,./,' | grep -vxF -f <($(server_packages))

# Tests with emulated hosts skip themselves where there can be none. Where root can make them they must not: what is skipped would be taken for tested.
netns = if [ "$$(id -u)" = 0 ] && [ -c /dev/net/tun ] && unshare --net true; then export TRIREME_REQUIRE_NETNS=1; \
	else echo "tests with emulated hosts are skipped: they need root, /dev/net/tun and network namespaces" >&2; fi

# The dashboard's test starts a browser, which leaves others no CPU: it runs behind them.
unit:
	@$(netns); export PROMTOOL=$$(scripts/promtool.sh || true); $(unit_packages) | grep -vxF ./internal/dashboard | xargs -r go test -timeout 10m
	@go test -timeout 10m ./internal/dashboard

mutants-short:
	@scripts/mutants.sh --short

# Each rule broken on purpose, and what notices; writes docs/safety/mutants.md.
mutants:
	@scripts/deps.sh test
	@bin=$$(scripts/mysql.sh); export MYSQLD=$$bin/mysqld TRIREME_REQUIRE_MYSQL=1; scripts/mutants.sh --servers --write

integration:
	@scripts/deps.sh test
	@$(netns); bin=$$(scripts/mysql.sh); export MYSQLD=$$bin/mysqld TRIREME_REQUIRE_MYSQL=1; \
	$(server_packages) | xargs -r go test -p 1 -timeout 60m

bench bench-full: build
	@scripts/deps.sh bench
	@bin=$$(scripts/mysql.sh) && MYSQLD=$$bin/mysqld exec bin/trireme bench run $(SUITES) $(if $(filter bench,$@),--quick) $(ARGS)

verify: build
	@scripts/deps.sh test
	@bin=$$(scripts/mysql.sh); MYSQLD=$$bin/mysqld bin/trireme verify cluster --time $(SOAK_HOURS)h $(ARGS) && bin/trireme verify report

fuzz:
	@scripts/deps.sh build
	@scripts/fuzz.sh $(FUZZ_TIME)

# SOAK="sim fuzz": only these parts.
soak: build
	@scripts/deps.sh soak
	@bin=$$(scripts/mysql.sh); export MYSQLD=$$bin/mysqld VERSITYGW=$$(scripts/versitygw.sh || true); exec scripts/soak.sh $(SOAK_HOURS) $(SOAK)

clean:
	rm -rf bin dist
