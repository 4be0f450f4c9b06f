#!/bin/bash
# Runs every fuzz target of the project for TIME each, one after the other with all processors, and prints a table:
#
#   scripts/fuzz.sh TIME [PACKAGE…]        TIME as Go writes it, such as 20s or 10m; packages as paths, such as ./internal/mysql/gtid
#
# An input that fails is kept in the package's testdata/fuzz, where every later `go test` runs it too, and the script ends with
# status 1. What was found interesting on the way is kept in ~/.cache/trireme/fuzz (TRIREME_CACHE names another place), so that the next
# run goes on from there.
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH=$PATH:/usr/local/go/bin
time=${1:?"usage: scripts/fuzz.sh TIME [PACKAGE…]"}
shift
[[ $time =~ ^([0-9]+(\.[0-9]+)?(h|m|s|ms))+$|^[0-9]+x$ ]] || { echo "TIME is \"$time\", not something like 20s" >&2; exit 2; }
packages=("$@")
if [ ${#packages[@]} = 0 ]; then
	mapfile -t packages < <(git ls-files -co --exclude-standard -- '*_test.go' | xargs grep -l '^func Fuzz' | xargs -n 1 dirname | sort -u | sed 's,^,./,')
fi
cache=${TRIREME_CACHE:-$HOME/.cache/trireme}/fuzz
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

printf '%-42s %12s %8s  %s\n' target runs new result
failed=0
for package in "${packages[@]}"; do
	name=${package#./}
	# Built once with the coverage that the fuzzer steers by.
	if ! go test -c -fuzz=. -o "$work/test" "$package"; then
		printf '%-42s %12s %8s  %s\n' "${name#internal/}" - - "FAILED: it does not build"
		failed=1
		continue
	fi
	targets=$(cd "$package" && "$work/test" -test.list '^Fuzz')
	for target in $targets; do
		mkdir -p "$cache/$name"
		if (cd "$package" && "$work/test" -test.run '^$' -test.fuzz "^$target\$" -test.fuzztime "$time" -test.fuzzcachedir "$cache/$name") >"$work/out" 2>&1; then
			result=ok
		else
			result=FAILED
			failed=1
		fi
		last=$(grep -a '^fuzz: elapsed' "$work/out" | tail -1 || true)
		runs=$(sed -nE 's/.*execs: ([0-9]+).*/\1/p' <<<"$last")
		new=$(sed -nE 's/.*new interesting: ([0-9]+).*/\1/p' <<<"$last")
		printf '%-42s %12s %8s  %s\n' "${name#internal/}.$target" "${runs:--}" "${new:--}" "$result"
		if [ $result = FAILED ]; then
			sed 's/^/    /' "$work/out" | tail -40
		fi
	done
done
exit $failed
