# make demo        three nodes, load, faults, verdict; needs only Go and a network
# make build       bin/trireme, and bin/trireme-lab, which proves and measures it
# make package     .deb, .rpm, tarball and Helm chart in dist; make package-test installs them in a throw-away root
# make manual      docs/cli.md, docs/api.md, docs/lab.md and the man pages
# make check       for every edit: a look at the source, unit tests, a short simulation, one cluster of real servers
# make test        everything a change must pass (.ci/run calls it), with the time of each package
# make test-long   the tests that take minutes each
# make flakes      every package many times while a share of the CPU is stolen: which tests fail now and then?
# make mutants     breaks each rule on purpose: what notices?
# make regressions brings old bugs back, one at a time: does the kit still find each?
# make golden      keeps what the last release (lab/testkit/releases) writes, for later versions to read
# make pictures    the pictures of the dashboard in docs/pictures, of a real cluster
# make walks       follows pages of docs/ops (WALK=alerts: one) on emulated hosts, and pastes what their commands print now
# make bench       Trireme and its rivals, a short run of every suite (SUITES="cpu jitter": of some), with a report
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
# Where the programs go; GOARCH=arm64 makes them for another machine.
BIN ?= bin
# Suites to measure: make bench SUITES="topologies cpu" ARGS="--threads 64"
SUITES ?= all

.PHONY: all build package package-test manual demo programs check test test-long lint flakes mutants regressions golden pictures walks bench bench-full verify fuzz soak clean

all: build

# Static, so that one file can be copied to any host. Both know the digest of the commit path: counts of campaigns are for it.
build:
	@scripts/deps.sh build
	@path=$$(env -u GOOS -u GOARCH go run ./test/commitpath) || exit; commit=$$(git describe --always --dirty --abbrev=40 --exclude '*' 2>/dev/null || true); \
	export CGO_ENABLED=0; mkdir -p $(BIN); \
	go build -trimpath -ldflags "$(LDFLAGS) -X main.commitPath=$$path -X main.revision=$$commit" -o $(BIN)/ ./cmd/trireme; \
	go build -trimpath -ldflags "$(LDFLAGS) -X trireme/lab/campaign.commitPath=$$path -X trireme/lab/campaign.revision=$$commit" -o $(BIN)/ ./cmd/trireme-lab

# dist/: .deb, .rpm, tarball, Helm chart.
package:
	@scripts/deps.sh build
	@scripts/package.sh

# Installs, upgrades, removes and purges what is in dist, in a throw-away root. Needs root.
package-test: package
	@scripts/deps.sh package
	@scripts/package-test.sh

# docs/cli.md, docs/api.md, docs/lab.md and, in bin/man, the man pages: what --help says.
manual: build
	bin/trireme manual --markdown >docs/cli.md
	bin/trireme manual --api >docs/api.md
	bin/trireme-lab manual --markdown >docs/lab.md
	bin/trireme manual bin/man
	bin/trireme-lab manual bin/man

demo: build
	@bin=$$(scripts/mysql.sh) && MYSQLD=$$bin/mysqld exec bin/trireme demo $(ARGS)

# The programs that tests start, built once: the released one, one with failpoints, and one that says it is a later release.
programs:
	@mkdir -p bin/programs; export CGO_ENABLED=0; build() { go build -trimpath -buildvcs=false -o bin/programs/"$$@" ./cmd/trireme; }; \
	build trireme; build trireme-failpoints -tags failpoints; build trireme-next -ldflags "-X main.version=9.9.9"

check test test-long:
	@scripts/deps.sh $(if $(filter check,$@),build,$(if $(filter test,$@),test,soak))
	@exec scripts/test.sh $(patsubst test-%,%,$@)

lint:
	@scripts/deps.sh build
	@scripts/lint.sh

flakes:
	@scripts/deps.sh test
	@exec scripts/flakes.sh $(ARGS)

# Each rule broken on purpose, and what notices; writes docs/safety/mutants.md.
mutants:
	@scripts/deps.sh test
	@bin=$$(scripts/mysql.sh); export MYSQLD=$$bin/mysqld TRIREME_REQUIRE_MYSQL=1; scripts/mutants.sh --servers --write

# Bugs of docs/safety/found.md, brought back one at a time (test/regressions), and what finds them.
regressions:
	@scripts/deps.sh test
	@bin=$$(scripts/mysql.sh); export MYSQLD=$$bin/mysqld TRIREME_REQUIRE_MYSQL=1; scripts/regressions.sh

# Directories of nodes of the last release, once for each release: docs/format/README.md.
golden:
	@scripts/deps.sh test
	@bin=$$(scripts/mysql.sh); export MYSQLD=$$bin/mysqld TRIREME_REQUIRE_MYSQL=1; \
	go test -count 1 -run '^TestWriteGolden$$' ./test/robustness -golden && go test -count 1 -run '^TestReleases$$' ./internal/node -update

# docs/pictures: the dashboard of a real cluster, and of a week of test data.
pictures: programs
	@scripts/deps.sh test
	@mkdir -p docs/pictures; bin=$$(scripts/mysql.sh); export MYSQLD=$$bin/mysqld TRIREME_REQUIRE_MYSQL=1 TRIREME_PROGRAMS=$$PWD/bin/programs; \
	go test -count 1 -run '^TestPictures$$' ./test/smoke -pictures $$PWD/docs/pictures && \
	go test -count 1 -run '^TestPeriodInChromium$$' ./internal/control/dashboard -pictures $$PWD/docs/pictures

# What commands print, in docs/ops: of emulated hosts. The long tests compare.
walks: programs
	@scripts/deps.sh soak
	@bin=$$(scripts/mysql.sh); export MYSQLD=$$bin/mysqld TRIREME_REQUIRE_MYSQL=1 TRIREME_LONG=1 TRIREME_PROGRAMS=$$PWD/bin/programs; \
	go test -count 1 -timeout 45m -run '^TestWalks$$/$(WALK)' ./test/walk -paste

bench bench-full: build
	@scripts/deps.sh bench
	@bin=$$(scripts/mysql.sh) && MYSQLD=$$bin/mysqld exec bin/trireme-lab bench run $(SUITES) $(if $(filter bench,$@),--quick) $(ARGS)

verify: build
	@scripts/deps.sh test
	@bin=$$(scripts/mysql.sh); MYSQLD=$$bin/mysqld bin/trireme-lab verify cluster --time $(SOAK_HOURS)h $(ARGS) && bin/trireme-lab verify report

fuzz:
	@scripts/deps.sh build
	@scripts/fuzz.sh $(FUZZ_TIME)

# SOAK="sim fuzz": only these parts.
soak: build
	@scripts/deps.sh soak
	@bin=$$(scripts/mysql.sh); export MYSQLD=$$bin/mysqld VERSITYGW=$$(scripts/versitygw.sh || true); exec scripts/soak.sh $(SOAK_HOURS) $(SOAK)

clean:
	rm -rf bin dist
