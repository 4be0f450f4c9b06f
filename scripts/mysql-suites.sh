#!/usr/bin/env bash
# Finds MySQL's own test scripts for the tests that run them, or fetches them, and
# prints on stdout the folder that holds bin/mysqltest, bin/mysql_client_test and
# mysql-test with the scripts. Progress and errors go to stderr.
#
#   1. MYSQL_SUITES=/path/to/such/a/folder, when set, is used or refused.
#   2. The test suites of MySQL 9.7 from Debian sid, unpacked below
#      ${TRIREME_CACHE:-~/.cache/trireme}: see scripts/debian.sh.
#
# Safe to run twice, and twice at once; an interrupted run leaves nothing half done.
set -euo pipefail

readonly tested_series=9.7
readonly product="MySQL's test suites" need_mib=2500
advice=(
  "To use test suites of MySQL that you already have:"
  "    MYSQL_SUITES=/path/to/a/folder with bin/mysqltest, bin/mysql_client_test and mysql-test"
)

# shellcheck source=scripts/debian.sh
source "$(dirname "${BASH_SOURCE[0]}")/debian.sh"

# version FOLDER: prints the version of its mysqltest; fails when it does not tell one.
version() {
  local text
  [[ -d $1/mysql-test/t && -x $1/bin/mysql_client_test ]] || return 1
  text=$("$1/bin/mysqltest" --no-defaults --version 2>&1 | head -n 1) || true
  [[ $text =~ Ver\ ([0-9]+\.[0-9]+\.[0-9]+) ]] || return 1
  echo "${BASH_REMATCH[1]}"
}

build() {
  local tool
  unpack "$1" mysql-testsuite
  for tool in mysqltest mysql_client_test; do
    {
      wrapper_head "$2"
      wrapper_exec usr/lib/mysql-test/bin/$tool usr/lib/mysql/private
    } >"$1/bin/$tool"
    chmod 755 "$1/bin/$tool"
  done
  ln -s root/usr/lib/mysql-test "$1/mysql-test"
  # What the package manager needs beside it: only the libraries are used.
  rm -rf "$1"/root/usr/{sbin,share,lib/mysql} "$1"/root/{etc,var}
  v=$(version "$1") || die "what was fetched does not run" "${advice[@]}"
}

if [[ -n ${MYSQL_SUITES:-} ]]; then
  version "$MYSQL_SUITES" >/dev/null || die "MYSQL_SUITES=$MYSQL_SUITES does not hold MySQL's test suites" "${advice[@]}"
  (cd "$MYSQL_SUITES" && pwd)
else
  fetched "$cache/mysql-suites-$tested_series"
  echo "$cache/mysql-suites-$tested_series"
fi
