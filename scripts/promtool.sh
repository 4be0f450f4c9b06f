#!/usr/bin/env bash
# Finds Prometheus' promtool, or fetches it, and prints on stdout its path: what is shipped in packaging/monitoring is tested with it.
# Progress and errors go to stderr.
#
#   1. PROMTOOL=/path/to/promtool, when set, is used or refused.
#   2. promtool on PATH.
#   3. promtool of Prometheus from Debian sid, unpacked below
#      ${TRIREME_CACHE:-~/.cache/trireme}: see scripts/debian.sh.
#
# Safe to run twice, and twice at once; an interrupted run leaves nothing half done.
set -euo pipefail

readonly product=promtool need_mib=400
advice=(
  "To use a promtool that you already have:"
  "    PROMTOOL=/path/to/promtool"
)

# shellcheck source=scripts/debian.sh
source "$(dirname "${BASH_SOURCE[0]}")/debian.sh"

# version PROGRAM: prints its version; fails when it does not tell one.
version() {
  local text
  text=$("$1" --version 2>&1 | head -n 1) || true
  [[ $text =~ ^promtool,\ version\ ([0-9]+\.[0-9]+\.[0-9]+) ]] || return 1
  echo "${BASH_REMATCH[1]}"
}

build() {
  unpack "$1" promtool
  {
    wrapper_head "$2"
    wrapper_exec usr/bin/promtool usr/lib
  } >"$1/bin/promtool"
  chmod 755 "$1/bin/promtool"
  v=$(version "$1/bin/promtool") || die "what was fetched does not run" "${advice[@]}"
}

if [[ -n ${PROMTOOL:-} ]]; then
  program=$(command -v "$PROMTOOL") && version "$program" >/dev/null || die "PROMTOOL=$PROMTOOL is not a promtool" "${advice[@]}"
elif program=$(command -v promtool) && version "$program" >/dev/null; then
  :
else
  fetched "$cache/promtool"
  program=$cache/promtool/bin/promtool
fi
echo "$program"
