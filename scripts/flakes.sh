#!/usr/bin/env bash
# Which tests fail now and then? Runs every package many times while a share of the CPU is stolen, lists the tests that failed, and keeps what they said.
#
#   scripts/flakes.sh [PACKAGE…]     such as ./internal/core/ha; none: all of them, those without servers first, fast ones before slow ones
#
#   RUNS=300           how often a package is run without its tests of real servers
#   SERVER_RUNS=10     how often one with such tests is run with them
#   STEAL=15           percent of each CPU that is stolen; 0: none. Needs root.
#   FLAKES_HOURS=8     begin nothing more after so long
#   FLAKES_DIR=…       where the results are: runs that are in there are not repeated. Else a folder of the commit in ~/.cache/trireme/flakes
#
# A CPU is stolen as a hypervisor does it: for some milliseconds nothing of ours runs on it, at moments that nobody can foresee, on each CPU for itself. A
# real-time process of higher priority that is busy does just that. Everything else on this machine feels it too.
# Status 1: a test failed.
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH=$PATH:/usr/local/go/bin
# shellcheck source=scripts/packages.sh
source scripts/packages.sh
runs=${RUNS:-300} server_runs=${SERVER_RUNS:-10} steal=${STEAL:-15}
dir=${FLAKES_DIR:-${TRIREME_CACHE:-$HOME/.cache/trireme}/flakes/$(git rev-parse --short HEAD)}

# thief CPU: is busy for 2 to 40 ms, and then sleeps until its share of the time is right.
thief() {
  exec 9<> <(:)
  local busy until
  while :; do
    busy=$((2000 + RANDOM % 38000)) # microseconds
    until=$((${EPOCHREALTIME/./} + busy))
    while ((${EPOCHREALTIME/./} < until)); do :; done
    read -rt "$(printf '0.%06d' $((busy * (100 - steal) / steal)))" -u 9 || true
  done
}

# many PACKAGE KIND N: runs it until there are N runs in all, or the time is over.
many() {
  local package=$1 kind=$2 n=$3 name=${1#./} status from
  name=$dir/$kind/${name//\//.}
  local test=$name.test
  touch "$name.runs"
  (($(wc -l <"$name.runs") < n)) || return 0
  if [[ ! -e $test ]]; then go test -c -vet=off -o "$test" "$package"; fi
  while (($(wc -l <"$name.runs") < n && $(date +%s) < ends)); do
    from=${EPOCHREALTIME/./} status=ok
    (cd "$package" && TRIREME_DEFER=$defer timeout --kill-after=30 3600 "$test" -test.timeout 50m) >"$name.out" 2>&1 || status=FAILED
    [[ $status == ok ]] || mv "$name.out" "$name.failed.$(date +%s%N)"
    echo "$status $(((${EPOCHREALTIME/./} - from) / 1000)) ms" >>"$name.runs"
  done
  rm -f "$test" "$name.out"
}

# side_by_side JOBS KIND N PACKAGE…
side_by_side() {
  local package
  for package in "${@:4}"; do
    while (($(jobs -pr | wc -l) >= $1 + ${#thieves[@]})); do wait -n || true; done
    many "$package" "$2" "$3" &
    working+=($!)
  done
  while (($(jobs -pr | wc -l) > ${#thieves[@]})); do wait -n || true; done
}

# fast_first KIND PACKAGE…: by the time of the first run.
fast_first() {
  local package name
  for package in "${@:2}"; do
    name=${package#./}
    echo "$(sed -n '1s/.* \([0-9]*\) ms/\1/p' "$dir/$1/${name//\//.}.runs" 2>/dev/null || true) $package"
  done | sort -n | cut -d' ' -f2
}

listing() {
  local file name
  printf '\n%-8s %-32s %6s %6s\n' kind package runs failed
  for file in "$dir"/*/*.runs; do
    name=$(basename "$file" .runs)
    printf '%-8s %-32s %6d %6d\n' "$(basename "$(dirname "$file")")" "${name//./\/}" "$(wc -l <"$file")" "$(grep -c ^FAILED "$file" || true)"
  done
  if compgen -G "$dir/*/*.failed.*" >/dev/null; then
    printf '\ntimes what failed (outputs are in %s)\n' "$dir"
    for file in "$dir"/*/*.failed.*; do
      name=$(basename "${file%.failed.*}")
      grep -aoE '^ *--- FAIL: [^ ]+|^panic: .*|^fatal error: .*' "$file" | sed -E "s,^ *(--- FAIL: )?,${name//./\/}.," | sort -u || true
    done | sort | uniq -c | sort -rn
    return 1
  fi
}

if [[ ${1:-} == --list ]]; then listing; exit; fi
ends=$(($(date +%s) + $(awk "BEGIN { printf \"%d\", ${FLAKES_HOURS:-8} * 3600 }")))
mkdir -p "$dir/unit" "$dir/servers"
export CGO_ENABLED=0 GOFLAGS="$(go env GOFLAGS) -trimpath"
netns
need_servers
thieves=() working=()
trap 'kill "${thieves[@]}" "${working[@]}" 2>/dev/null || true' EXIT
if ((steal > 0)); then
  for cpu in $(taskset -cp $$ | sed 's/.*: //' | tr ',' '\n' | awk -F- '{ for (i = $1; i <= ($2 == "" ? $1 : $2); i++) print i }'); do
    (
      taskset -cp "$cpu" $BASHPID >/dev/null && chrt -f -p 50 $BASHPID || exit 1
      thief
    ) &
    thieves+=($!)
  done
fi

unit=$(packages | but "$servers_only" | paths)
servers=$(with_servers | paths)
if (($# > 0)); then
  unit=$(with "$*" <<<"$unit")
  servers=$(with "$*" <<<"$servers")
fi
defer=servers,quiet
# shellcheck disable=SC2086  # folders are words
{
  side_by_side "$(nproc)" unit 1 $unit
  side_by_side "$(nproc)" unit "$runs" $(fast_first unit $unit)
  defer=
  side_by_side 1 servers 1 $servers
  side_by_side 1 servers "$server_runs" $(fast_first servers $servers)
}
for pid in "${thieves[@]}"; do
  kill -0 "$pid" 2>/dev/null || echo "flakes.sh: no CPU was stolen: that needs root and the right to real-time priority" >&2
done
listing
