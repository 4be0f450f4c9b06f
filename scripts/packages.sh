# To be read by scripts that run tests: which packages there are, and what this machine can do.
# shellcheck shell=bash disable=SC2034

# Packages that hardly have a test without real servers: these, and all below test that no_servers does not list. All others may have tests of both
# kinds: needs.MySQL tells them apart.
servers_only='lab/rivals internal/mysql/mysqld'
no_servers='test/layout test/summary test/commitpath'
# Of those with servers, the ones that two at a time may run: one server or one small cluster each, and no test that measures time.
two_at_once='lab/rivals internal/mysql/mysqld test/mysql test/smoke'
# Run without the race detector. In the simulation and the model no two goroutines share anything, only seeds or searches run side by side. The scripts of
# cmd/trireme start the program hundreds of times, which takes five times as long with it, and do one thing in each.
no_race='lab/sim lab/sim/model cmd/trireme'

# packages: folders with tests.
packages() { git ls-files -co --exclude-standard -- '*_test.go' | while read -r f; do [[ ! -e $f ]] || dirname "$f"; done | sort -u; }

# with_servers: those of which tests start real servers.
with_servers() {
  git ls-files -co --exclude-standard -- '*_test.go' | while read -r f; do [[ ! -e $f ]] || echo "$f"; done |
    xargs grep -lE 'needs\.(MySQL|Tool)\(|testkit\.|TRIREME_REQUIRE_MYSQL' | xargs -n 1 dirname | sort -u | but "$no_servers"
}

servers_only="$servers_only $(packages | grep ^test/ | grep -vxF -f <(tr ' ' '\n' <<<"$no_servers") | paste -sd' ')"

# but LIST, with LIST: of the lines of standard input those that are not, and that are, among the words.
but() { grep -vxF -f <(tr ' ' '\n' <<<"$1") || true; }
with() { grep -xF -f <(tr ' ' '\n' <<<"$1") || true; }
paths() { sed 's,^,./,'; }

# netns: where root can make emulated hosts, tests of them must not skip themselves: what is skipped would be taken for tested.
netns() {
  if [[ $(id -u) == 0 && -c /dev/net/tun ]] && unshare --net true; then
    export TRIREME_REQUIRE_NETNS=1
  else
    echo "tests with emulated hosts are skipped: they need root, /dev/net/tun and network namespaces" >&2
  fi
}

# need_servers: what tests with real servers need.
need_servers() {
  local bin
  bin=$(scripts/mysql.sh)
  export MYSQLD=$bin/mysqld TRIREME_REQUIRE_MYSQL=1 TRIREME_PROGRAMS=$PWD/bin/programs
  make -s programs
}

# noticed FILE: what go test said is that a test has failed, and not that nothing was tested.
noticed() { grep -qE -e '--- FAIL|^panic:' "$1"; }
