#!/usr/bin/env bash
# Installs what the driver tests (test/drivers) connect with, and only what is missing: HAProxy, Node's mysql2 and the Python drivers, the last two
# into ${TRIREME_CACHE:-~/.cache/trireme}/drivers.
#
# What cannot be had is said and left out: its tests skip themselves, and fail where CI or TRIREME_SOAK is set. Status 0 all the same.
set -uo pipefail
dir=${TRIREME_DRIVERS:-${TRIREME_CACHE:-$HOME/.cache/trireme}/drivers}

say() { printf 'drivers.sh: %s\n' "$*" >&2; }

# package PROGRAM NAME…: from the distribution, when we are root.
package() {
  command -v "$1" >/dev/null && return
  [[ $(id -u) == 0 ]] && command -v apt-get >/dev/null || return 1
  say "$1 is missing: installing ${*:2}"
  { DEBIAN_FRONTEND=noninteractive apt-get -q update && DEBIAN_FRONTEND=noninteractive apt-get -q install -y --no-install-recommends "${@:2}"; } </dev/null >&2
}

python() {
  local in=$dir/python
  "$in/bin/python" -c 'import pymysql, cryptography, mysql.connector, sqlalchemy, pymysqlreplication' 2>/dev/null && return
  command -v python3 >/dev/null && python3 -c 'import ensurepip' 2>/dev/null || package no-such-program python3-venv || return 1
  say "installing the Python drivers into $in"
  rm -rf "$in" && python3 -m venv "$in" && timeout 300 "$in/bin/pip" -q --disable-pip-version-check install PyMySQL cryptography mysql-connector-python SQLAlchemy mysql-replication >&2
}

node() {
  local in=$dir/node
  package node nodejs && package npm npm || return 1
  [[ -d $in/node_modules/mysql2 ]] && return
  say "installing mysql2 into $in"
  mkdir -p "$in" && (cd "$in" && timeout 300 npm install --no-audit --no-fund --loglevel error mysql2 >&2)
}

mkdir -p "$dir"
exec 9>"$dir/lock" && flock 9 # two at once would install into one folder
package haproxy haproxy || say "there is no haproxy: docs/balancers.md will not be tested"
python || say "the Python drivers cannot be had: their tests skip themselves"
node || say "Node's mysql2 cannot be had: its tests skip themselves"
exit 0
