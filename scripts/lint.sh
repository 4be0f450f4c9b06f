#!/usr/bin/env bash
# What a look at the source finds: gofmt, patches of test/regressions that do not apply any more, go vet, staticcheck, and with --vulnerabilities govulncheck, where its database can be reached.
set -euo pipefail
cd "$(dirname "$0")/.."
exec 2>&1
export PATH=$PATH:/usr/local/go/bin

bad=$(gofmt -l $(git ls-files -co --exclude-standard -- '*.go' | while read -r f; do [[ ! -e $f ]] || echo "$f"; done))
if [[ -n $bad ]]; then
  printf 'not formatted (run gofmt -w):\n%s\n' "$bad"
  exit 1
fi
scripts/regressions.sh --check
go vet ./...
go run honnef.co/go/tools/cmd/staticcheck ./...

[[ ${1:-} == --vulnerabilities ]] || exit 0
# Known vulnerabilities that the program reaches. A database says what is known (VULN_DB names one, such as file:///srv/vulndb; else the public one). Where it
# cannot be reached nothing is judged.
status=0
tool=$(go tool -n -modfile=scripts/govulncheck.mod govulncheck 2>&1) || status=$?
if [[ $status == 0 ]]; then
  said=$(timeout --kill-after=5 "${VULN_LIMIT:-120}" "$tool" ${VULN_DB:+-db "$VULN_DB"} ./cmd/... 2>&1) || status=$?
fi
case $status in
  0) echo "govulncheck: no known vulnerability is reached" ;;
  3) printf '%s\n' "$said"; exit 1 ;; # this is how it says that it has found some
  124 | 137) echo "govulncheck: not judged: it had no answer in time" ;;
  *) echo "govulncheck: not judged: it or its database cannot be had here" ;;
esac
