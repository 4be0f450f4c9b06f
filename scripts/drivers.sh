#!/usr/bin/env bash
# Installs what the driver tests (test/drivers) connect with, and only what is missing: HAProxy, Node's mysql2 and the Python drivers, the last two
# into ${TRIREME_CACHE:-~/.cache/trireme}/drivers.
#   scripts/drivers.sh           what `make test` connects with
#   scripts/drivers.sh soak      besides, there too: mysqlclient, Connector/J with HikariCP, ShardingSphere-JDBC and Debezium (Maven), Rust's sqlx (Cargo), and PHP's PDO
#
# What cannot be had is said and left out: its tests skip themselves, and fail where CI or TRIREME_SOAK is set. Status 0 all the same.
set -uo pipefail
dir=${TRIREME_DRIVERS:-${TRIREME_CACHE:-$HOME/.cache/trireme}/drivers}

say() { printf 'drivers.sh: %s\n' "$*" >&2; }

# package PROGRAM NAME…: from the distribution, when we are root.
package() {
  type -P "$1" >/dev/null && return # not command -v: functions here are called like programs
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

mysqlclient() {
  "$dir/python/bin/python" -c 'import MySQLdb' 2>/dev/null && return
  package no-such-program default-libmysqlclient-dev pkg-config gcc || return 1
  say "installing mysqlclient into $dir/python"
  timeout 600 "$dir/python/bin/pip" -q --disable-pip-version-check install mysqlclient >&2
}

# jars FOLDER JAR SECONDS POM WHAT: the jars that a pom names, unless one of them is there.
jars() {
  local in=$dir/$1
  package java default-jdk-headless || return 1
  compgen -G "$in/$2-*.jar" >/dev/null && return
  package mvn maven || return 1
  say "installing $5 into $in"
  timeout "$3" mvn -q -B -f "$4/pom.xml" dependency:copy-dependencies -DoutputDirectory="$in" >&2
}

java() { jars java HikariCP 600 "$clients/java" "Connector/J and HikariCP"; }

sharding() { jars sharding shardingsphere-jdbc 900 "$clients/../../robustness/testdata/sharding" ShardingSphere-JDBC; }

debezium() { jars debezium debezium-connector-mysql 900 "$clients/../../robustness/testdata/debezium" Debezium; }

# A copy is built, so that Cargo's own files are not left in the tree.
rust() {
  local in=$dir/rust
  [[ -x $in/target/debug/sqlx-client && $in/target/debug/sqlx-client -nt $clients/rust/src/main.rs && $in/target/debug/sqlx-client -nt $clients/rust/Cargo.toml ]] && return
  package cargo cargo || return 1
  say "building sqlx in $in"
  mkdir -p "$in" && cp -R "$clients/rust/Cargo.toml" "$clients/rust/src" "$in" && (cd "$in" && timeout 1200 cargo build -q >&2)
}

php() {
  php_has_mysql || { package no-such-program php-cli php-mysql && php_has_mysql; }
}

php_has_mysql() { command php -r 'exit(in_array("mysql", PDO::getAvailableDrivers()) ? 0 : 1);' >/dev/null 2>&1; }

clients=$(cd "$(dirname "$0")/../test/drivers/clients" && pwd)
mkdir -p "$dir"
exec 9>"$dir/lock" && flock 9 # two at once would install into one folder
package haproxy haproxy || say "there is no haproxy: docs/balancers.md will not be tested"
python || say "the Python drivers cannot be had: their tests skip themselves"
node || say "Node's mysql2 cannot be had: its tests skip themselves"
if [[ ${1:-} == soak ]]; then
  mysqlclient || say "mysqlclient cannot be had: its test fails"
  java || say "Connector/J and HikariCP cannot be had: their tests fail"
  sharding || say "ShardingSphere-JDBC cannot be had: its test fails"
  debezium || say "Debezium cannot be had: its test fails"
  rust || say "sqlx cannot be had: its test fails"
  php || say "PHP's PDO cannot be had: its test fails"
fi
exit 0
