#!/bin/bash
# Everything that is to find a lost transaction, a leak or a crash, for HOURS in all (such as 6, or 0.5), and a summary:
#
#   scripts/soak.sh HOURS [PART…]          parts: leaks campaign sim tests race fuzz mutants regressions; none: all of them
#   SOAK_WRITE=1 scripts/soak.sh …         leaks writes docs/safety/leaks.md too
#
# Each part has a share of the time, ends by itself, and writes to a file of its own. Tests, seeds and targets are begun as long as its share
# lasts, and what has been begun may end: what does not, long after it should have, is stuck, and has failed. Status 1: a promise was broken,
# something failed or was stuck, a mutant lived, or an old bug was not found. bin/trireme and bin/trireme-lab must be built, MYSQLD name a server; `make soak` sees to both.
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH=$PATH:/usr/local/go/bin
hours=${1:?"usage: scripts/soak.sh HOURS [PART…]"}
shift
[[ $hours =~ ^[0-9]+(\.[0-9]+)?$ ]] || { echo "HOURS is \"$hours\", not a number" >&2; exit 2; }
declare -A share=([leaks]=10 [campaign]=27 [sim]=20 [tests]=20 [race]=5 [fuzz]=10 [mutants]=5 [regressions]=3) # percent
parts=("$@")
[ ${#parts[@]} != 0 ] || parts=(leaks campaign sim tests race fuzz mutants regressions)
total=0
for part in "${parts[@]}"; do
	[ -n "${share[$part]:-}" ] || { echo "no part $part; there are: leaks campaign sim tests race fuzz mutants regressions" >&2; exit 2; }
	total=$((total + share[$part]))
done
out=$(mktemp -d "${TMPDIR:-/tmp}/trireme-soak.XXXXXX")
export TMPDIR=$out/tmp TRIREME_REQUIRE_MYSQL=1 TRIREME_REQUIRE_NETNS=1 TRIREME_SOAK=1 TRIREME_KEEP=$out/kept
mkdir -p "$TMPDIR" "$TRIREME_KEEP"
# shellcheck source=scripts/packages.sh
source scripts/packages.sh
need_servers
trap 'rm -rf "$TMPDIR"' EXIT
running=
trap '[ -z "$running" ] || kill "$running"; exit 130' INT TERM

# within SECONDS COMMAND…: its output goes to the part's file. Status 124 or 137: it was stuck. $signal ends it then: ABRT makes a Go program print
# its stacks (go test does so by itself, at its -timeout). In the background, so that Ctrl-C ends all of it.
within() {
	local status=0
	timeout --signal="${signal:-TERM}" --kill-after=30 "$1" "${@:2}" >>"$log" 2>&1 &
	running=$!
	wait "$running" || status=$?
	running=
	case $status in 124 | 137) echo "stuck: not at its end after $1 s: ${*:2}" >>"$log" ;; esac
	return $status
}

# go_test SECONDS PACKAGE TEST ARGS…: one test, which has failed, and shows where it stands, if it takes longer.
go_test() { within $(($1 + 300)) go test "$2" -run "$3" -count 1 -timeout "$1s" "${@:4}"; }

# left: seconds of the part's share.
left() { echo $((until - $(date +%s))); }

tests_of() { go test -list '^Test' "$1" | grep '^Test' | sed "s,^,$1 ,"; }

run_leaks() { # a round takes some ten seconds
	local rounds=$(($(left) / 15))
	TRIREME_LEAKS_PAGE=${SOAK_WRITE:+$PWD/docs/safety/leaks.md} TRIREME_ROUNDS=$((rounds < 12 ? 12 : rounds)) go_test $(($(left) * 2 + 900)) ./test/robustness '^TestNoLeaks$' -v
}

run_campaign() { # it ends by itself, after the fault under way and the checks
	signal=ABRT within $(($(left) + 900)) bin/trireme-lab verify cluster --time "$(left)s"
}

run_sim() {
	local from=${SOAK_SEED:-$(date +%s)}000 batch=100 failed=0
	go_test 3600 ./lab/sim/model Deep || return
	while [ "$(left)" -gt 0 ]; do
		signal=ABRT within 1800 bin/trireme-lab verify sim --seeds $batch --from "$from" --jobs "$(nproc)" || failed=$?
		[ $failed = 0 ] || return $failed
		from=$((from + batch))
	done
}

run_tests() { # one at a time, in another order each time, so that what a short soak leaves out comes in the next
	local package test failed=0 status from
	: >>"$log"
	{ with_servers | paths; go run ./test/summary -long . | cut -d' ' -f1; } | sort -u >"$out/packages"
	while read -r package; do tests_of "$package"; done <"$out/packages" | grep -v ' TestNoLeaks$' | shuf >"$out/tests"
	while read -r package test && [ "$(left)" -gt 0 ]; do
		status=0
		from=$(stat -c %s "$log")
		go_test 7200 "$package" "^$test\$" -v || status=$?
		[ $status = 0 ] || failed=$status
		if tail -c +$((from + 1)) "$log" | grep -qE '^--- SKIP'; then status=skipped; fi
		echo "$package $test: status $status" >>"$log"
	done <"$out/tests"
	[ -s "$out/tests" ] || { echo "no tests were found" >>"$log"; return 1; }
	echo "$(grep -c ': status 0$' "$log") of $(wc -l <"$out/tests") tests were run and passed, $(grep -c ': status skipped$' "$log") skipped themselves" >>"$log"
	return $failed
}

run_race() { # the daemon, and router and node in it, with the race detector: it is slower, and no test is judged but by the races that it comes upon
	local test tests=0
	mkdir -p "$out/programs" "$out/races"
	within 1800 env CGO_ENABLED=1 go build -race -trimpath -buildvcs=false -o "$out/programs/trireme" ./cmd/trireme
	ln -sf "$TRIREME_PROGRAMS"/trireme-* "$out/programs/"
	tests_of ./test/robustness | grep -v ' TestNoLeaks$' | shuf >"$out/racing"
	while read -r _ test && [ "$(left)" -gt 0 ]; do
		TRIREME_PROGRAMS=$out/programs GORACE="log_path=$out/races/found" go_test 3600 ./test/robustness "^$test\$" || true
		tests=$((tests + 1))
	done <"$out/racing"
	if compgen -G "$out/races/*" >/dev/null; then
		cat "$out"/races/* >>"$log"
		return 1
	fi
	echo "no race in $tests tests" >>"$log"
	[ $tests -gt 0 ]
}

run_fuzz() {
	local targets each
	targets=$(git ls-files -- '*_test.go' | xargs grep -h '^func Fuzz' | wc -l)
	each=$(($(left) / targets))
	within $(($(left) * 2 + 1800)) scripts/fuzz.sh $((each < 1 ? 1 : each))s
}

run_mutants() { within $(($(left) * 2 + 7200)) scripts/mutants.sh --servers; }

run_regressions() { within $(($(left) * 2 + 7200)) scripts/regressions.sh; }

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
	124 | 137) verdict="FAILED: stuck, see $log"; failed=1; tail -30 "$log" | sed 's/^/    /' ;;
	*) verdict="FAILED (status $status), see $log"; failed=1; tail -30 "$log" | sed 's/^/    /' ;;
	esac
	summary+=$(printf '%-10s %5d s  %s' "$part" $(($(date +%s) - began)) "$verdict")$'\n'
	summary+=$(tail -1 "$log" | cut -c1-160 | sed 's/^/                    /')$'\n'
done
printf '\nsoak of %s h, commit %s\n%s' "$hours" "$(git rev-parse --short HEAD)" "$summary"
exit $failed
