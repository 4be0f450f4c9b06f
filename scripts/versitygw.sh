#!/usr/bin/env bash
# Finds versitygw, an S3 service over a directory, or builds it, and prints on stdout its path: backups in buckets are tested with it.
# Progress and errors go to stderr.
#
#   1. VERSITYGW=/path/to/versitygw, when set, is used or refused.
#   2. The one of the version below, built with Go below ${TRIREME_CACHE:-~/.cache/trireme}, once. It takes a minute or two on an idle machine, and
#      half an hour on a busy one (some 150 modules). What was downloaded and compiled stays in Go's caches: another try goes on.
set -euo pipefail
export PATH=$PATH:/usr/local/go/bin

readonly version=v1.8.0 limit=1800s
cache=${TRIREME_CACHE:-${HOME:-/root}/.cache/trireme}
say() { printf 'versitygw.sh: %s\n' "$*" >&2; }

if [[ -n ${VERSITYGW:-} ]]; then
  program=$(command -v "$VERSITYGW") || { say "error: VERSITYGW=$VERSITYGW is not a program"; exit 1; }
else
  program=$cache/versitygw-$version/versitygw
  if [[ ! -x $program ]]; then
    say "building versitygw $version"
    mkdir -p "$cache"
    part=$(mktemp -d "$cache/versitygw.XXXXXX")
    trap 'rm -rf "$part"' EXIT
    # Away from here: its modules are none of ours.
    built() { (cd "$part" && GOFLAGS= GOBIN=$part timeout "$limit" go install -trimpath "github.com/versity/versitygw/cmd/versitygw@$version" >&2); }
    built || built || built || { say "error: versitygw could not be built; run this again, it continues where it was"; exit 1; }
    mkdir -p "${program%/*}"
    mv "$part/versitygw" "$program" # whole or not at all
  fi
fi
echo "$program"
