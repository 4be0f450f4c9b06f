#!/bin/sh
# A digest of the commit path: of all sources, tests left out, of what a node's daemon is made of (internal/node and every
# package of ours that it needs but the dashboard and the recorder, and the file that starts it), and of the versions of the
# modules that it needs. Verbs that ask a daemon, or that work before there is one, are in the same program and touch no
# write of a node's. When the digest changes, the counts of fault campaigns start again (docs/safety).
set -eu
cd "$(dirname "$0")/.."
parts="cmd/trireme/daemon.go internal/api internal/ask internal/binlog internal/config internal/consensus internal/dump internal/failpoint internal/gtid internal/guard
 internal/ha internal/ledger internal/mutant internal/mysqld internal/mysqlwire internal/nbio internal/node internal/node/ackpath internal/node/certs internal/node/reads internal/node/recovery internal/node/lifecycle internal/pki internal/raftlog
 internal/router internal/rule internal/sqlkind internal/systemd internal/transport internal/vip"
for p in $parts; do
	[ -e "$p" ] || { echo "commit-path.sh: there is no $p; bring its list up to date" >&2; exit 1; }
done
{
	# shellcheck disable=SC2086
	find $parts -maxdepth 1 -name '*.go' ! -name '*_test.go' | LC_ALL=C sort | xargs sha256sum
	grep -E '^go |go.etcd.io/raft|golang.org/x/sys|klauspost/compress' go.mod
} | sha256sum | cut -c 1-16
