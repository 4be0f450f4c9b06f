#!/usr/bin/env bash
# The tests, in phases, and then where the time went (test/summary):
#
#   scripts/test.sh check     for every edit: a look at the source, unit tests, a short simulation, one cluster of real servers
#   scripts/test.sh test      all that a change must pass
#   scripts/test.sh long      what tests with needs.Long find: minutes each
#
# A phase that fails does not end the run. What each phase said is kept in bin/test, failures are repeated at the end.
# Unit tests run side by side. A test that needs real servers, or a machine for itself, says so (package needs): the unit phase leaves it to a later
# one, which runs exactly those, so that a package may have tests of both kinds.
set -euo pipefail
cd "$(dirname "$0")/.."
mode=${1:?"usage: scripts/test.sh check|test|long"}
export PATH=$PATH:/usr/local/go/bin

# What a run starts ends with it, however it ends: it has process ids and mounts of its own where that can be had (as root).
alone=(setpriv --pdeathsig KILL unshare --fork --pid --mount --mount-proc --kill-child)
if [[ -z ${TRIREME_TEST_ALONE:-} ]] && "${alone[@]}" true 2>/dev/null; then
  TRIREME_TEST_ALONE=1 "${alone[@]}" "$0" "$@" &
  trap 'kill -KILL $!; bin/summary -part bin/test/*.json || true; exit 1' INT TERM
  wait $!
  exit
fi

out=bin/test
rm -rf $out
mkdir -p $out

# With -trimpath all clones of the project share what Go has built. Without cgo tests are built from the same parts as the program.
export CGO_ENABLED=0 GOFLAGS="$(go env GOFLAGS) -trimpath"

# shellcheck source=scripts/packages.sh
source scripts/packages.sh

failed=0
phases=()

# phase NAME COMMAND…
phase() {
  phases+=("$out/$1.json")
  echo "== $1" >&2
  bin/summary "$out/$1.json" "${@:2}" || failed=1
}

# tests NAME ARG…: a phase of go test. Nothing of an earlier run counts, but in make check.
tests() {
  local count=(-count=1)
  [[ $mode != check ]] || count=()
  phase "$1" go test -json -vet=off "${count[@]}" "${@:2}"
}

# deferred NAME WHAT ARG…: a phase of the tests that the phase unit has left to it.
deferred() {
  local list
  list=$(bin/summary -deferred "$2" $out/unit.json)
  [[ -n $list ]] || return 0
  tests "$1" "${@:3}" -run "^($(cut -d' ' -f2 <<<"$list" | sort -u | paste -sd'|'))\$" $(cut -d' ' -f1 <<<"$list" | sort -u)
}

# Phases that only compute, without a limit of time, have what the others leave of the processors, a fifth: whatever else can run comes first.
idle() { chrt --idle --pid 0 $BASHPID || true; }
computing() {
  idle
  phase lint scripts/lint.sh --vulnerabilities
  tests sim -timeout 60m $(packages | with "$no_race" | but cmd/trireme | paths)
}
later() {
  idle
  deferred norace norace -timeout 60m
}
broken() { phase mutants scripts/mutants.sh --short; } # some show in time only
waiting() { deferred servers servers -p 2 -timeout 30m; }

# beside FUNCTION PHASE,…: begins FUNCTION, which runs these phases; what comes next runs at the same time.
declare -A running
beside() {
  (
    failed=0
    $1
    exit $failed
  ) &
  running[$1]=$!
  local name
  for name in ${2//,/ }; do phases+=("$out/$name.json"); done
}
# joined FUNCTION waits for its end.
joined() { wait "${running[$1]}" || failed=1; }

finish() {
  local file made=()
  for file in "${phases[@]}"; do [[ ! -e $file ]] || made+=("$file"); done
  bin/summary "${1:--of}" "${made[@]}" || failed=1
  exit $failed
}
trap 'failed=1; finish -part' INT TERM

go build -o bin/summary ./test/summary
netns
PROMTOOL=$(scripts/promtool.sh) || true
export PROMTOOL
case $mode in
  check)
    need_servers
    phase lint scripts/lint.sh
    TRIREME_DEFER=servers,quiet tests unit -p 4 -timeout 10m $(packages | but "$servers_only $no_race" | paths)
    tests sim -short -timeout 10m $(packages | with "$no_race" | paths)
    tests smoke -count=1 -timeout 10m ./test/smoke
    finish -part
    ;;
  test)
    need_servers
    beside computing lint,sim
    TRIREME_DEFER=servers,quiet,norace CGO_ENABLED=1 tests unit -race -p 4 -timeout 15m $(packages | but "$servers_only $no_race" | paths)
    beside broken mutants
    tests cli -timeout 15m ./cmd/trireme
    joined broken
    deferred quiet quiet -p 1 -timeout 15m
    beside later norace
    beside waiting servers
    tests mysql -p 2 -parallel 3 -timeout 30m $(packages | with "$two_at_once" | paths)
    joined waiting
    tests clusters -p 1 -parallel 3 -timeout 60m $(packages | with "$servers_only" | but "$two_at_once" | paths)
    joined computing
    joined later
    finish
    ;;
  long)
    need_servers
    export TRIREME_LONG=1
    list=$(bin/summary -long .)
    tests long -p 1 -timeout 3h -run "^($(cut -d' ' -f2 <<<"$list" | sort -u | paste -sd'|'))\$" $(cut -d' ' -f1 <<<"$list" | sort -u)
    finish
    ;;
  *)
    echo "scripts/test.sh: there is no $mode, only check, test and long" >&2
    exit 2
    ;;
esac
