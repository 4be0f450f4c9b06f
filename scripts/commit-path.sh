#!/bin/sh
# A digest of the commit path: of all sources, tests left out, of the program that a node runs, but for the safety kit and the benchmarks, which are
# in it and touch no write of a node's; and of the versions of the modules that it needs. When it changes, the counts of fault campaigns begin anew
# (docs/safety).
set -eu
cd "$(dirname "$0")/.."
packages="cmd/trireme internal/adopt internal/alone internal/api internal/binlog internal/config internal/consensus internal/dashboard internal/dump internal/failpoint internal/gtid internal/guard
 internal/ha internal/ledger internal/mutant internal/mysqld internal/mysqlwire internal/nbio internal/node internal/pki internal/raftlog internal/relay
 internal/router internal/setup internal/sqlkind internal/systemd internal/transport internal/vip"
for p in $packages; do
	[ -d "$p" ] || { echo "commit-path.sh: there is no $p; bring its list up to date" >&2; exit 1; }
done
{
	# shellcheck disable=SC2086
	find $packages -name '*.go' ! -name '*_test.go' | LC_ALL=C sort | xargs sha256sum
	grep -E '^go |go.etcd.io/raft|golang.org/x/sys|klauspost/compress' go.mod
} | sha256sum | cut -c 1-16
