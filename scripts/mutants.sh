#!/bin/bash
# Breaks the rules of docs/GUARANTEES.md one at a time (internal/base/mutant) and runs what has to notice: a test that passes without the mutation and fails
# with it. Prints a table, and fails if a mutation goes unnoticed.
#
#   scripts/mutants.sh                  those that unit tests, the model and the simulation catch
#   scripts/mutants.sh --short          a part of them, side by side, for make test, where the same tests are run without a mutation
#   scripts/mutants.sh --servers        also what only real servers show (MYSQLD names a mysqld; minutes)
#   scripts/mutants.sh --write          writes docs/safety/mutants.md too
#   scripts/mutants.sh mutant_s2 …      only these
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/packages.sh
source scripts/packages.sh

# tag | package | tests | short: also in the short form, servers: needs real ones
# The simulation runs the daemon's own code, but for mysqld and its files, which it models: S5 is broken in the model there, in the same way.
catchers='
mutant_s1       | ./lab/sim                  | TestSQLCampaign                    | short
mutant_s1       | ./test/robustness          | TestUnacknowledgedIsGone/insert    | servers
mutant_s2       | ./internal/core/consensus  | TestOnlyFsyncedEntriesAreCounted   | short
mutant_s2       | ./lab/sim                  | TestSQLCampaign                    |
mutant_s3       | ./internal/node/lifecycle  | TestFeedGivesOnlyCommitted         | short
mutant_s3       | ./lab/sim                  | TestSQLCampaign                    |
mutant_s4       | ./lab/sim                  | TestSQLCampaign                    |
mutant_s4       | ./test/robustness          | TestFenceReleasesNobody            | servers
mutant_s5       | ./lab/sim                  | TestSQLCampaign                    |
mutant_s5       | ./test/robustness          | TestUnacknowledgedIsGone/insert    | servers
mutant_s5judge  | ./internal/core/ledger     | TestJudge$                         | short
mutant_s6       | ./lab/sim                  | TestSQLCampaign                    |
mutant_s6       | ./test/robustness          | TestLeaderHasApplied               | servers
mutant_s7       | ./internal/core/consensus  | TestTranscripts                    | short
mutant_s7       | ./lab/sim                  | TestSQLCampaign                    |
mutant_s8       | ./internal/core/ledger     | TestPurgePoint                     | short
mutant_s8       | ./lab/sim                  | TestSQLCampaign                    |
mutant_s8       | ./lab/sim/model            | TestNoPromiseIsBroken$             |
mutant_s9       | ./internal/node            | TestRaftWithoutMySQL               | short
mutant_s10      | ./internal/core/consensus  | TestLeaseEndsBeforeAnotherCanLead  | short
mutant_s10      | ./lab/sim                  | TestSQLCampaign                    |
mutant_s11      | ./lab/sim                  | TestSQLCampaign                    |
mutant_s12      | ./internal/core/dump       | TestSourceReconnectsAfterAnError   | short
mutant_s12      | ./lab/sim                  | TestSQLCampaign                    |
mutant_s13      | ./internal/core/consensus  | TestPanicIsFatal                   | short
mutant_reopen   | ./internal/node/leadership | TestSwitchover$                    | short
mutant_reopen   | ./lab/sim                  | TestSwitchoverReopens              |
'

servers= write= short= only=
for arg; do
  case $arg in
    --servers) servers=1 ;;
    --write) write=1 ;;
    --short) short=1 ;;
    mutant_*) only="$only $arg" ;;
    *) echo "usage: $0 [--short] [--servers] [--write] [mutant_s2 …]" >&2; exit 2 ;;
  esac
done
if [[ -n $write && -n $short$only ]]; then
  echo "$0: a page with a part of the mutations is of no use" >&2
  exit 2
fi

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# run TAG PACKAGE TESTS: runs the tests on the code as TAG makes it ("intact": as it is). The clusters of test/robustness are made of a program that is
# built here, since the mutation belongs into it and not into the test.
run() {
  local tags=() args=()
  [[ $1 == intact ]] || tags=(-tags "$1")
  local seeds=100
  [[ $1 != mutant_s7 ]] || seeds=1000 # 3 seeds of 2,361 notice: a node has to lead twice while a proposal waits
  [[ $3 != TestSQLCampaign ]] || args=(-args -sim.seeds "$seeds" -sim.failures 12) # where the first ones are of liveness, go on
  if [[ $2 == ./test/robustness ]]; then
    [[ -e $scratch/$1 ]] || CGO_ENABLED=0 go build "${tags[@]}" -o "$scratch/$1" ./cmd/trireme || return 3
    TRIREME_BINARY=$scratch/$1 go test -vet off -count 1 -timeout 10m -run "$3" "$2"
  else
    go test -vet off -count 1 -timeout 10m "${tags[@]}" -run "$3" "$2" "${args[@]}"
  fi
}

# what MUTATION of a tag: the comment beside its constant.
what() {
  local rule
  rule=$(rule "$1")
  sed -n "s/^\t$rule *= broken == \"$rule\" *\/\/ //p" internal/base/mutant/mutant.go
}

# where TAG PACKAGE: whose code is broken when the tests of PACKAGE run.
where() {
  local files
  case $2:$1 in
    ./lab/sim:mutant_s5) echo "the simulation's model of mysqld" && return ;;
  esac
  files=$(git grep -l "mutant\.$(rule "$1")\b" -- 'internal/*.go' ':!internal/base/mutant')
  dirname "$files"
}

# rule TAG: its name in the code.
rule() {
  local rule=${1#mutant_}
  rule=${rule^}
  echo "${rule/judge/Judge}"
}

# row TAG PACKAGE OUTCOME SECONDS: a line of the table.
row() {
  local rule where
  rule=$(rule "$1") where=$(where "$1" "$2")
  printf '%-16s %8s  %s\n' "$1" "$4" "$3"
  table+="| ${rule/Judge/} | $(what "$1") | $where | $3 | $4 |"$'\n'
}

# attempt N TAG PACKAGE TESTS: a mutation. Files N.outcome and N.seconds are the cells of its row; N.fatal is there if it could not be tried.
attempt() {
  local n=$scratch/$1 tag=$2 pkg=$3 tests=$4 began took outcome
  local control=$scratch/control.${pkg//\//_}.${tests//\//_}
  outcome="${pkg#./} \`${tests%$}\`"
  if [[ -z $short && ! -e $control ]] && ! run intact "$pkg" "$tests" >"$control" 2>&1; then
    { echo "$pkg $tests fails without any mutation:"; cat "$control"; } >"$n.fatal"
    return
  fi
  began=$(date +%s%N)
  if run "$tag" "$pkg" "$tests" >"$n.out" 2>&1; then
    outcome="**nothing** ($outcome passes)"
    : >"$n.missed"
  elif ! noticed "$n.out" || [[ $tests == TestSQLCampaign ]] && ! grep -qE "seed [0-9]+: [A-Z]" "$n.out"; then # not of liveness
    { echo "$tag: $pkg was not tested:"; cat "$n.out"; } >"$n.fatal"
    return
  fi
  took=$((($(date +%s%N) - began) / 1000000))
  echo "$((took / 1000)).$((took % 1000 / 100))" >"$n.seconds"
  echo "$outcome" >"$n.outcome"
}

tags=() pkgs=() jobs=1
[[ -z $short ]] || jobs=$(nproc)
while IFS='|' read -r tag pkg tests kind; do
  tag=${tag// /} pkg=${pkg// /} tests=${tests// /} kind=${kind// /}
  [[ -n $tag ]] || continue
  [[ -z $short || $kind == short ]] || continue
  [[ -z $only || " $only " == *" $tag "* ]] || continue
  n=${#tags[@]}
  tags+=("$tag") pkgs+=("$pkg")
  if [[ $kind == servers && -z $servers ]]; then
    echo "${pkg#./} \`${tests%$}\`" >"$scratch/$n.outcome"
    echo "not run: needs real servers" >"$scratch/$n.seconds"
    continue
  fi
  while (($(jobs -pr | wc -l) >= jobs)); do wait -n || true; done
  attempt "$n" "$tag" "$pkg" "$tests" &
done <<<"$catchers"
wait

table=$'| rule | what the code does instead | broken in | caught by | seconds |\n|-|-|-|-|-|\n'
missed=0
for n in "${!tags[@]}"; do
  if [[ ! -e $scratch/$n.outcome ]]; then
    echo "${tags[n]} ${pkgs[n]} was not judged" >&2
    cat "$scratch/$n.fatal" >&2
    exit 1
  fi
  row "${tags[n]}" "${pkgs[n]}" "$(<"$scratch/$n.outcome")" "$(<"$scratch/$n.seconds")"
  [[ ! -e $scratch/$n.missed ]] || missed=1
done

for file in internal/base/mutant/*.go; do
  tag=mutant_$(basename "$file" .go)
  [[ $tag != mutant_mutant && $tag != mutant_none ]] || continue
  grep -q "^$tag " <<<"$catchers" || { echo "$tag: nothing is said to catch it" >&2; missed=1; }
done

if [[ -n $write ]]; then
  cat >docs/safety/mutants.md <<PAGE
# Mutations

Would the tests notice if a rule of [GUARANTEES.md](../GUARANTEES.md) were broken? Each rule is broken on purpose, at one place in the code
(\`internal/base/mutant\`, a build tag each), and the cheapest tests that must notice are run: they pass on the unchanged code and fail with the
mutation. All rows but one break the code that the daemon runs: mysqld and its files are a model in the simulation, which breaks S5 in the same way.
*Reopen* is a step of a switchover, without which nobody could write any more.

This page is written by

    make mutants                       # all rows, those with real servers too
    scripts/mutants.sh --write         # without servers: those rows say "not run"

on commit $(git rev-parse --short HEAD), $(go env GOVERSION), $(nproc) CPUs; seconds include building, on a machine that did other work too. The quick part
is in \`make test\`.

$table
The model of [model.md](model.md) also breaks each rule, in the model, and shows the shortest way to the loss.
PAGE
fi
if ((missed)); then
  echo "a mutation went unnoticed" >&2
  exit 1
fi
