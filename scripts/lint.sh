#!/usr/bin/env bash
# What a look at the source finds: gofmt, go vet, staticcheck, and govulncheck where its data can be reached.
set -euo pipefail
cd "$(dirname "$0")/.."
exec 2>&1
export PATH=$PATH:/usr/local/go/bin

bad=$(gofmt -l $(git ls-files -co --exclude-standard -- '*.go' | while read -r f; do [[ ! -e $f ]] || echo "$f"; done))
if [[ -n $bad ]]; then
  printf 'not formatted (run gofmt -w):\n%s\n' "$bad"
  exit 1
fi
go vet ./...
go run honnef.co/go/tools/cmd/staticcheck ./...

# Known vulnerabilities that the programs reach. What is known is asked of a service, which a machine may not reach: then nothing is judged.
status=0
said=$(timeout --kill-after=5 "${VULN_LIMIT:-120}" go run golang.org/x/vuln/cmd/govulncheck ./cmd/... 2>&1) || status=$?
case $status in
  0) echo "govulncheck: no known vulnerability is reached" ;;
  3) printf '%s\n' "$said"; exit 1 ;; # that is how it says that it has found some
  124 | 137) echo "govulncheck: not judged: it had no answer in time" ;;
  *) echo "govulncheck: not judged: its data cannot be had here" ;;
esac
