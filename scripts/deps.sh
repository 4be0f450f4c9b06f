#!/usr/bin/env bash
# Checks for what `make <goal>` needs and installs only what is missing.
#   scripts/deps.sh build        Go
#   scripts/deps.sh test         Go, a C compiler, a MySQL server (scripts/mysql.sh), what its drivers' tests connect with (scripts/drivers.sh), Chromium, mandoc
#   scripts/deps.sh soak         the same, sysbench, the drivers that only a soak connects with, and MySQL's own test scripts (scripts/mysql-suites.sh)
#   scripts/deps.sh package      Go, and what looks at packages: dpkg, rpm, lintian, systemd-analyze
#   scripts/deps.sh bench        the same, sysbench, and MySQL Router where it can be had (scripts/mysql-router.sh)
# Progress and errors go to stderr; prints nothing on stdout.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
export PATH=$PATH:/usr/local/go/bin

say() { printf 'deps.sh: %s\n' "$*" >&2; }
die() { say "error: $*"; exit 1; }

# need PROGRAM PACKAGES ADVICE: PROGRAM is on PATH, or is installed by apt when we are root.
need() {
  command -v "$1" >/dev/null && return
  if [[ $(id -u) == 0 ]] && command -v apt-get >/dev/null; then
    say "$1 is missing: installing $2"
    # shellcheck disable=SC2086  # the packages are words
    { DEBIAN_FRONTEND=noninteractive apt-get -q update && DEBIAN_FRONTEND=noninteractive apt-get -q install -y --no-install-recommends $2; } </dev/null >&2 || true
  fi
  command -v "$1" >/dev/null || die "$1 is missing. $3"
}

need_go() {
  need go golang-go "Install Go >= 1.21 from https://go.dev/dl/ (it fetches the version that go.mod names by itself)."
  # An older Go cannot read go.mod's version and fails with a puzzle.
  local v
  v=$(go env GOVERSION 2>/dev/null) || die "go does not run"
  [[ $v =~ ^go1\.([0-9]+) && ${BASH_REMATCH[1]} -ge 21 || $v =~ ^(devel|go[2-9]) ]] ||
    die "$v is too old. Install Go >= 1.21 from https://go.dev/dl/ (it fetches the version that go.mod names by itself)."
}

need_sysbench() { need sysbench sysbench "Install it from your distribution (apt-get install sysbench)."; }

case ${1:-build} in
  build) need_go ;;
  test | soak)
    need_go
    need gcc "gcc libc6-dev" "Install a C compiler: Go's race detector is linked with it."
    "$here/mysql.sh" >/dev/null
    "$here/drivers.sh" "$1"
    (need mandoc mandoc "Install it from your distribution.") || say "man pages are not checked"
    (need chromium chromium "Install it from your distribution, or set CHROMIUM.") || say "tests that look at pages in a browser are skipped"
    [[ $1 == test ]] || need_sysbench
    [[ $1 == test ]] || need pgrep procps "Install it from your distribution."
    [[ $1 == test ]] || "$here/mysql-suites.sh" >/dev/null
    ;;
  package)
    need_go
    need dpkg-deb dpkg "Install it from your distribution; packages of both kinds are tested on Debian."
    need rpm rpm "Install it from your distribution (apt-get install rpm)."
    need lintian lintian "Install it from your distribution (apt-get install lintian)."
    need systemd-analyze systemd "Install it from your distribution (apt-get install systemd)."
    need systemd-nspawn systemd-container "Install it from your distribution (apt-get install systemd-container)."
    ;;
  bench)
    need_go
    "$here/mysql.sh" >/dev/null
    need_sysbench
    # A rival that the benchmarks go without.
    "$here/mysql-router.sh" >/dev/null || say "there is no MySQL Router: InnoDB Cluster will not be compared"
    ;;
  *) die "unknown goal $1 (build, test, soak, package, bench)" ;;
esac
