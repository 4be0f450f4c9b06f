#!/bin/bash
# Brings back bugs of docs/safety/found.md, one at a time, and shows that the kit still finds each: test/regressions holds what undoes a mend
# as a patch. Each is applied to a throw-away work tree of this commit (and of what is changed and not committed), and the test that it names is run: it
# must fail there, and say what the patch says. Ends with a table, and fails if a bug was not found or a patch does not apply any more.
#
#   scripts/regressions.sh              all; those that need real servers only if MYSQLD names one
#   scripts/regressions.sh --check      only: does each still apply to the files as they are?
#   scripts/regressions.sh own-xa …     only these
#
# The lines before a patch:
#   Bug: what was wrong
#   Found-by: PACKAGE TEST [servers]    what has to fail; servers: it needs real ones
#   Says: an extended regular expression that a line of its output matches, so that it has failed for this reason
set -euo pipefail
shopt -s inherit_errexit
cd "$(dirname "$0")/.."
export PATH=$PATH:/usr/local/go/bin

field() { sed -n "/^---/q; s/^$1: //p" "$2"; }

check= only=
for arg; do
  case $arg in
    --check) check=1 ;;
    -*) echo "usage: $0 [--check] [NAME…]" >&2; exit 2 ;;
    *) [[ -e test/regressions/$arg.patch ]] || { echo "$0: there is no test/regressions/$arg.patch" >&2; exit 2; }; only="$only $arg" ;;
  esac
done

failed=0
for patch in test/regressions/*.patch; do
  for f in Bug Found-by Says; do
    [[ -n $(field $f "$patch") ]] || { echo "$patch has no line $f:" >&2; failed=1; }
  done
  if ! said=$(git apply --check "$patch" 2>&1); then
    printf '%s does not apply any more: write the same bug into the code as it is now, and save the difference there.\n%s\n' "$patch" "$said" >&2
    failed=1
  fi
done
if [[ -n $check || $failed != 0 ]]; then
  exit $failed
fi

export CGO_ENABLED=0 GOFLAGS="$(go env GOFLAGS) -trimpath"
unset TRIREME_PROGRAMS TRIREME_BINARY # of the code without the bug
# shellcheck source=scripts/packages.sh
source scripts/packages.sh
scratch=$(mktemp -d)
tree=$scratch/tree
trap 'git worktree remove --force "$tree" 2>/dev/null || true; rm -rf "$scratch"' EXIT
commit=$( # of all that is here, with an index of its own
  export GIT_INDEX_FILE=$scratch/index
  git add -A
  git -c user.name=regressions -c user.email=regressions@localhost commit-tree "$(git write-tree)" -p HEAD -m "to be tried"
)
git worktree add --quiet --detach "$tree" "$commit"

table=
for patch in test/regressions/*.patch; do
  name=$(basename "$patch" .patch)
  [[ -z $only || " $only " == *" $name "* ]] || continue
  read -r pkg tests kind <<<"$(field Found-by "$patch")"
  out=$scratch/$name
  began=$(date +%s)
  if [[ $kind == servers && -z ${MYSQLD:-} ]]; then
    outcome="not run: needs real servers"
  else
    git -C "$tree" apply "$PWD/$patch"
    if (cd "$tree" && go test -vet off -count 1 -timeout 15m -run "^$tests\$" "$pkg") >"$out" 2>&1; then
      outcome="NOT FOUND: the test passes"
    elif ! noticed "$out"; then
      outcome="NOT TESTED"
    elif ! grep -qE -e "$(field Says "$patch")" "$out"; then
      outcome="NOT FOUND: the test fails for another reason"
    else
      outcome=found
    fi
    git -C "$tree" apply -R "$PWD/$patch"
    case $outcome in found) ;; *) failed=1; tail -60 "$out" >&2 ;; esac
  fi
  row=$(printf '%-22s %5d s  %-20s %s' "$name" $(($(date +%s) - began)) "${pkg#./}" "$tests: $outcome")
  echo "$row" >&2
  table+=$row$'\n'
done
printf '\n%s' "$table"
((!failed)) || echo "a bug that was mended could come back unseen" >&2
exit $failed
