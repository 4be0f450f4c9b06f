#!/bin/sh
# A digest of the commit path: of all sources, tests left out, of the packages that a write passes through until it is acknowledged, recovered
# and fed again, and of the versions of the modules that they need. When it changes, the counts of fault campaigns begin anew (docs/safety).
set -eu
cd "$(dirname "$0")/.."
packages="internal/binlog internal/consensus internal/dump internal/gtid internal/guard internal/ha internal/ledger internal/mysqld internal/mysqlwire internal/nbio
 internal/node internal/raftlog internal/relay internal/router internal/sqlkind internal/transport"
for p in $packages; do
	[ -d "$p" ] || { echo "commit-path.sh: there is no $p; bring its list up to date" >&2; exit 1; }
done
{
	# shellcheck disable=SC2086
	find $packages -name '*.go' ! -name '*_test.go' | LC_ALL=C sort | xargs sha256sum
	grep -E '^go |go.etcd.io/raft|golang.org/x/sys|klauspost/compress' go.mod
} | sha256sum | cut -c 1-16
