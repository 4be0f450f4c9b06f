#!/bin/bash
# Everything that is to find a lost transaction, a leak or a crash, for HOURS in all (such as 6, or 0.5), and a summary:
#
#   scripts/soak.sh HOURS [PART…]          parts: leaks campaign sim tests fuzz mutants; none: all of them
#
# Each part has a share of the time, ends by itself, and writes to a file of its own. What its time cuts short is no failure. Status 1: a
# promise was broken, something failed, or a mutant lived. bin/trireme must be built, MYSQLD name a server; `make soak` sees to both.
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH=$PATH:/usr/local/go/bin
hours=${1:?"usage: scripts/soak.sh HOURS [PART…]"}
shift
[[ $hours =~ ^[0-9]+(\.[0-9]+)?$ ]] || { echo "HOURS is \"$hours\", not a number" >&2; exit 2; }
declare -A share=([leaks]=10 [campaign]=30 [sim]=20 [tests]=25 [fuzz]=10 [mutants]=5) # percent
parts=("$@")
[ ${#parts[@]} != 0 ] || parts=(leaks campaign sim tests fuzz mutants)
total=0
for part in "${parts[@]}"; do
	[ -n "${share[$part]:-}" ] || { echo "no part $part; there are: leaks campaign sim tests fuzz mutants" >&2; exit 2; }
	total=$((total + share[$part]))
done
out=$(mktemp -d "${TMPDIR:-/tmp}/trireme-soak.XXXXXX")
export TMPDIR=$out/tmp TRIREME_REQUIRE_MYSQL=1 TRIREME_SOAK=1 TRIREME_KEEP=$out/kept
mkdir -p "$TMPDIR" "$TRIREME_KEEP"
trap 'rm -rf "$TMPDIR"' EXIT
running=
trap '[ -z "$running" ] || kill "$running"; exit 130' INT TERM

# within SECONDS COMMAND…: its output goes to the part's file. Status 124: time was up. In the background, so that Ctrl-C ends all of it.
within() {
	local status=0
	timeout --kill-after=30 "$1" "${@:2}" >>"$log" 2>&1 &
	running=$!
	wait "$running" || status=$?
	running=
	return $status
}

# left: seconds of the part's share.
left() { echo $((until - $(date +%s))); }

tests_of() { go test -list '^Test' "$1" | grep '^Test' | sed "s,^,$1 ,"; }

run_leaks() { # a round takes some ten seconds
	local rounds=$(($(left) / 15))
	TRIREME_ROUNDS=$((rounds < 12 ? 12 : rounds)) within "$(left)" go test ./test/robustness -run '^TestNoLeaks$' -count 1 -v -timeout 0
}

run_campaign() { # it ends by itself, after the fault under way and the checks
	within $(($(left) + 900)) bin/trireme verify cluster --time "$(left)s"
}

run_sim() {
	local from=${SOAK_SEED:-$(date +%s)}000 batch=100 failed=0
	within $(($(left) + 600)) go test ./internal/sim/model -run Deep -count 1 -timeout 0 || return
	while [ "$(left)" -gt 0 ]; do
		within $(($(left) + 60)) bin/trireme verify sim --seeds $batch --from "$from" --jobs "$(nproc)" || failed=$?
		[ $failed = 0 ] || return $failed
		from=$((from + batch))
	done
}

run_tests() { # one at a time, in another order each time, so that what a short soak leaves out comes in the next
	local package test failed=0 status
	git ls-files -- '*_test.go' | xargs grep -lE 'TRIREME_REQUIRE_MYSQL|MYSQLD' | xargs -n 1 dirname | sort -u | sed 's,^,./,' >"$out/packages"
	while read -r package; do tests_of "$package"; done <"$out/packages" | grep -v ' TestNoLeaks$' | shuf >"$out/tests"
	while read -r package test && [ "$(left)" -gt 0 ]; do
		status=0
		within "$(left)" go test "$package" -run "^$test\$" -count 1 -timeout 0 || status=$?
		[ $status = 0 ] || [ $status = 124 ] || failed=$status
		echo "$package $test: status $status" >>"$log"
	done <"$out/tests"
	[ -s "$out/tests" ] || { echo "no tests were found" >>"$log"; return 1; }
	echo "$(grep -c ': status 0$' "$log") of $(wc -l <"$out/tests") tests were run to their end" >>"$log"
	return $failed
}

run_fuzz() {
	local targets each
	targets=$(git ls-files -- '*_test.go' | xargs grep -h '^func Fuzz' | wc -l)
	each=$(($(left) / targets))
	within $(($(left) + 600)) scripts/fuzz.sh $((each < 1 ? 1 : each))s
}

run_mutants() { within $(($(left) + 600)) scripts/mutants.sh --servers; }

go version >/dev/null
failed=0
summary=
for part in "${parts[@]}"; do
	log=$out/$part.log
	seconds=$(awk "BEGIN { printf \"%d\", $hours * 3600 * ${share[$part]} / $total }")
	until=$(($(date +%s) + seconds))
	began=$(date +%s)
	status=0
	if [ "$part" = mutants ] && [ ! -x scripts/mutants.sh ]; then
		summary+=$(printf '%-10s %7s  %s' "$part" - "not run: scripts/mutants.sh is not there")$'\n'
		continue
	fi
	echo "soak: $part, ${seconds} s, $log"
	"run_$part" || status=$?
	case $status in
	0) verdict=ok ;;
	124) verdict="ok as far as it came: its time was up" ;;
	*) verdict="FAILED (status $status), see $log"; failed=1; tail -30 "$log" | sed 's/^/    /' ;;
	esac
	summary+=$(printf '%-10s %5d s  %s' "$part" $(($(date +%s) - began)) "$verdict")$'\n'
	summary+=$(tail -1 "$log" | cut -c1-160 | sed 's/^/                    /')$'\n'
done
printf '\nsoak of %s h, commit %s\n%s' "$hours" "$(git rev-parse --short HEAD)" "$summary"
exit $failed
