#!/usr/bin/env bash
# Finds MySQL Router for the benchmarks, or fetches it, and prints on stdout the
# path of mysqlrouter. Progress and errors go to stderr.
#
#   1. MYSQLROUTER=/path/to/mysqlrouter, when set, is used or refused.
#   2. mysqlrouter on PATH.
#   3. MySQL Router 9.7 from Debian sid, unpacked below
#      ${TRIREME_CACHE:-~/.cache/trireme}: see scripts/debian.sh.
#
# Safe to run twice, and twice at once; an interrupted run leaves nothing half done.
set -euo pipefail

readonly tested_series=9.7
readonly product="MySQL Router" need_mib=300
advice=(
  "To use a MySQL Router that you already have:"
  "    MYSQLROUTER=/path/to/mysqlrouter"
)

# shellcheck source=scripts/debian.sh
source "$(dirname "${BASH_SOURCE[0]}")/debian.sh"

# version PROGRAM: prints its version; fails when it does not tell one.
version() {
  local text
  text=$("$1" --version 2>&1 | head -n 1) || true
  [[ $text =~ ^MySQL\ Router\ +Ver\ ([0-9]+\.[0-9]+\.[0-9]+) ]] || return 1
  echo "${BASH_REMATCH[1]}"
}

build() {
  unpack "$1" mysql-router
  {
    wrapper_head "$2"
    # The folder of plugins is built into the program, and only a configuration file can name another one: at its
    # bootstrap it is told which one to write.
    cat <<'SH'
for a in "$@"; do
  case $a in
    -B | -B?* | --bootstrap | --bootstrap=*)
      set -- "$@" --conf-set-option=DEFAULT.plugin_folder="$r/usr/lib/mysqlrouter/plugin"
      break
      ;;
  esac
done
SH
    wrapper_exec usr/bin/mysqlrouter usr/lib/mysql-router
  } >"$1/bin/mysqlrouter"
  chmod 755 "$1/bin/mysqlrouter"
  v=$(version "$1/bin/mysqlrouter") || die "what was fetched does not run" "${advice[@]}"
}

if [[ -n ${MYSQLROUTER:-} ]]; then
  program=$(command -v "$MYSQLROUTER") && version "$program" >/dev/null || die "MYSQLROUTER=$MYSQLROUTER is not a MySQL Router" "${advice[@]}"
elif program=$(command -v mysqlrouter) && version "$program" >/dev/null; then
  :
else
  fetched "$cache/mysql-router-$tested_series"
  program=$cache/mysql-router-$tested_series/bin/mysqlrouter
fi
echo "$program"
