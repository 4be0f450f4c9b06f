package walk

import (
	"slices"
)

var walks = []walk{
	{page: "ops/first-cluster.md", hosts: "db1 db2 db3", steps: map[string][]string{
		"db1# trireme status":  {"healthy 1"},
		"db1# trireme mysql":   append(join("db3"), "healthy 3"),
		"db1# trireme history": {"db1# until trireme history | grep -q ' failover '; do sleep 0.1; done"},
	}, skip: []string{"db1# trireme status --watch"}},

	{page: "ops/switchover-and-failover.md", hosts: "db1 db2 db3", cluster: "db1 db2 db3", steps: map[string][]string{
		"db1# trireme why-not db3": {"db1# trireme config edit weight.db3=0"},
		"db1# trireme switchover --dry-run --to db2": {account,
			`db3# { (echo 'CREATE TEMPORARY TABLE shop.mine (id INT); BEGIN; ` +
				`UPDATE shop.stock SET n = n - 1 WHERE id = 7;'; exec sleep 1000) | ` +
				`mysql -h db1 -P 6446 -u shop -psecret; } >/dev/null 2>&1 </dev/null & ` +
				`until trireme switchover --dry-run | grep -q 'changed: UPDATE'; do sleep 0.1; done`},
		"db1# trireme failover --to db2": {"healthy 3", lead, "healthy 3",
			"db1" + powerOff,
			"db2# until trireme status | grep -q 'NO LEADER'; do sleep 0.1; done"},
		"db1# trireme config edit weight.db1=200 weight.db3=0": {"db1# systemctl start trireme", "healthy 3",
			"db1# trireme resume", "db1# trireme config edit weight.db3=100"},
		"db1# trireme history": {"db2# kill -9 $(pgrep -o -f defaults-file)",
			"db1# until trireme history | grep -q 'db2 *rejoin *mysqld (incarnation 2)'; do sleep 0.1; done"},
	}},

	{page: "ops/replace-a-node.md", hosts: "db1 db2 db3 db4 db5", cluster: "db1 db2 db3", steps: map[string][]string{
		"db1# trireme remove db3":     {"healthy 4", "db3" + powerOff},
		"db3# systemctl stop trireme": {"healthy 4"},
		"":                            append(join("db3"), "healthy 5"),
	}, skip: []string{"db1# trireme status --watch", "db1# trireme add db5 --role learner",
		"db1# trireme promote db5 --remove db3",
		"db1# trireme promote db4 --remove db3", "db1# trireme promote db4 db5 db6 --demote db1,db2,db3"}},

	{page: "ops/quorum-lost.md", hosts: "db1 db2 l3 db4 db5", cluster: "db1 db2 l3 db4 db5", steps: map[string][]string{
		"db2# trireme status": {account, "db1" + powerOff, "db4" + powerOff, "db5" + powerOff,
			"db2# until trireme status | grep -q 'hears 2 of 5 voters' && trireme status | grep -q '^db2.*healthy'; do " +
				"sleep 0.1; done"},
	}, skip: []string{"db8# trireme force-quorum --voters db8,db9 --dry-run",
		"db8# trireme force-quorum --voters db8,db9",
		"db1# trireme log dump --events --from 88211 /var/lib/trireme/raft",
		"db1# mysqlbinlog --include-gtids=2f1c…:501-517 /var/lib/trireme/raft/*.log"},
		fails: []string{"db2# trireme status"}},

	{page: "ops/access.md", hosts: "db1", cluster: "db1"},

	{page: "ops/certificates.md", hosts: "db1 db2 db3", cluster: "db1 db2 db3", steps: map[string][]string{
		// no leader's are revoked
		"db1# trireme cert revoke db2": {"healthy 3", "db1# trireme switchover --to db3 || true", "healthy 3"},
		"db1# trireme cert new-ca":     {"db1# trireme remove db2", "healthy 2"},
	}, skip: []string{
		"db1# trireme cert revoke 21ce35546243ad468c1116d419eb145c",
		"db3# ssh db1 cat /var/lib/trireme/tls/ca.pem >>/var/lib/trireme/tls/ca.pem",
		"db3# ssh db1 cat /var/lib/trireme/tls/ca.key >/var/lib/trireme/tls/ca.key",
		"db3# trireme cert renew && systemctl start trireme"}},

	{page: "ops/backup.md", hosts: "db1 db2 db3", cluster: "db1 db2 db3", steps: map[string][]string{
		"db2# trireme backup list /mnt/backup/shop": {account,
			`db2# mkdir -p /mnt/backup /mnt/scratch; setsid trireme backup ` +
				`--to /mnt/backup/shop --follow >/tmp/backup.log 2>&1 </dev/null & ` +
				`until trireme backup list /mnt/backup/shop 2>/dev/null | grep -q 'Z to 2'; do sleep 0.2; done`},
	}, skip: []string{"db2# trireme backup --to /mnt/backup/shop --follow", "db3# trireme backup --to /mnt/backup/shop",
		"db2# cp /usr/share/doc/trireme/examples/trireme-backup* /etc/systemd/system/",
		"db2# vi /etc/systemd/system/trireme-backup*", "db2# systemctl daemon-reload",
		"db2# systemctl enable --now trireme-backup.service trireme-backup-copy.timer",
		"db2# trireme backup --to s3://backups/shop --follow --s3-endpoint https://s3.example.com " +
			"--s3-path-style --s3-ca /etc/trireme/s3-ca.pem",
		"db2# trireme backup prune /mnt/backup/shop --keep 4",
		"db2# trireme backup --to /mnt/backup/shop --follow --key-file /etc/trireme/backup.key"}},

	{page: "ops/upgrade.md", hosts: "db1 db2 db3", cluster: "db1 db2 db3", instead: map[string]string{
		// it asks for each restart, and does none
		"db1# trireme restart": `trireme restart 2>&1 | while read -r line; do echo "$line"; case "$line" in ` +
			`"restart the daemon of "*) set -- $line; ssh root@$5 systemctl restart trireme;; esac; done`}},

	{page: "ops/change-an-address.md", hosts: "db1 db2 db3", cluster: "db1 db2 db3", instead: map[string]string{
		"db2# vi /etc/trireme/trireme.toml": "sed -i '/advertise/s/db2/db2.new/' /etc/trireme/trireme.toml",
	}, steps: map[string][]string{
		"db2# trireme history | grep -A 5 ' address '": {
			"db2# until trireme history | grep -q ' address '; do sleep 0.1; done"},
	}, skip: []string{"db1# vi /etc/trireme/trireme.toml", "db1# systemctl restart trireme"}},

	{page: "ops/large-transactions.md", hosts: "db1", cluster: "db1"},

	{page: "ops/report.md", hosts: "db1", cluster: "db1", instead: map[string]string{
		"db1# trireme report --from 02:30 --to 03:30": "until trireme report --from 10m; do sleep 1; done"}},

	{page: "ops/shapes.md", hosts: "db1 db2 db3 eu1", cluster: "db1 db2", steps: map[string][]string{
		"db1# trireme add eu1 --role learner":  {"db3# systemctl enable --now trireme", "healthy 3"},
		"db1# trireme config edit zone.eu1=eu": join("eu1", "learner"),
	}},

	{page: "ops/leave.md", hosts: "db1 db2 db3", cluster: "db1 db2", steps: map[string][]string{
		"db1# trireme leave --dry-run": append(join("db3", "logger"), "healthy 3"),
		"db1# trireme node":            {"db1# systemctl stop trireme"},
	}, fails: []string{"db1# trireme node"}},

	// Not provoked: a disk of the raft log that is slow, and followers that lag so that lag_objective slows commits (a
	// load of minutes); certificates and copies of the age that the alerts have; a log at its limit (docs/ops/shapes.md).
	{page: "ops/alerts.md", hosts: "db1 db2 db3", cluster: "db1 db2 db3", failpoints: true, steps: map[string][]string{
		"db1# trireme status": {account, orders, "db2" + powerOff, "db3" + powerOff,
			until("trireme status | grep 'NO LEADER' && trireme status | grep 'db3: not heard'"),
			asLongAs("trireme status | grep fencing")},
		"db1# trireme status | head -n 1":        {until("trireme status && trireme why-not db2 | grep 'could lead'")},
		"db1# trireme status | grep '^db3 ' (2)": {"healthy 3"},
		"db1# trireme why-not db2": {"db2# chmod 644 /usr/sbin/mysqld", "db2" + killServer,
			until("trireme why-not db2 | grep 'permission denied'")},
		"db1# trireme why-not db2 (2)": {"healthy 3"},
		"db1# trireme status | grep -A 1 'a failover now'": {lead, "healthy 3",
			"db1# trireme config edit weight.db2=0 weight.db3=0",
			until("trireme status | grep 'NOT POSSIBLE' | grep weight")},
		"db1# trireme status | grep 'a failover now'": {"healthy 3"},
		"db1# trireme history | grep -A 1 ' pause '":  {"db1# trireme pause"},
		"db1# trireme history | grep -A 3 -e ' fence ' -e ' failover ' | tail -n 4": {"healthy 3", killLeader, "healthy 3",
			lead, "healthy 3", killLeader, "healthy 3", lead, "healthy 3"},
		"db1# trireme status | grep 'db2 lags'": {lock("db2", "shop.orders"),
			`db1# trireme mysql <<<"UPDATE shop.orders SET n = 9 WHERE id = 1"`, until("trireme status | grep 'db2 lags'")},
		"db1# trireme status | grep '^db2 '": {"healthy 3", asLongAs("trireme status | grep 'db2 lags'")},
		"db1# trireme history | grep -A 5 ' large-transaction '": {"db1# trireme config edit transaction_warn=1MiB",
			`db1# trireme mysql <<<"CREATE TABLE shop.pages (id INT PRIMARY KEY, page VARCHAR(3000)); INSERT INTO shop.pages ` +
				`WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1000) ` +
				`SELECT i, REPEAT('x', 3000) FROM n"`,
			until("trireme history | grep ' large-transaction '"), "db1# trireme config edit transaction_warn=0B"},
		"db1# " + morePages: {"db1# trireme config edit transaction_refuse=1MiB",
			until("trireme mysql <<<'SELECT @@max_binlog_cache_size' | grep -w 1048576")},
		"db1# " + morePages + " (2)": {asLongAs("trireme mysql <<<'SELECT @@max_binlog_cache_size' | grep -w 1048576")},
		"db1# trireme status | head -n 3": {lock("db2", "shop.pages"), lock("db3", "shop.pages"),
			`db1# trireme mysql <<<"INSERT INTO shop.pages SELECT id + 10000, page FROM shop.pages"`,
			until("trireme status | tr '\n' ' ' | grep 'of it for large'")},
		"db1# trireme config edit lag_objective=0s": {unlock("db2"), unlock("db3"), "healthy 3"},
		"db1# curl -s http://db1:8008/metrics | grep commit_stage_seconds_sum": {
			"slow db1 db2 250ms", "slow db1 db3 250ms",
			`db1# for i in 1 2 3 4 5 6; do trireme mysql <<<"UPDATE shop.orders SET n = n + 1"; done`,
			"slow db1 db2 0s", "slow db1 db3 0s", "healthy 3"},
		"db1# trireme status | grep -A 1 SUSPENDED": {"healthy 3", lead,
			"db1# trireme config edit must_ack.db3=true commit_grace=1s", "healthy 3", "db3# systemctl stop trireme",
			`db1# trireme mysql <<<"UPDATE shop.orders SET n = n + 1"`, until("trireme status | grep SUSPENDED")},
		"db1# trireme history | grep ' rule-o'": {"healthy 3",
			"db1# trireme config edit must_ack.db3=false"},
		"db3# df -h /var/lib/trireme":               smallDisk("db3", 130_000_000),
		"db1# trireme status | grep FULL":           {fill("db3", 15_000_000), until("trireme status | grep FULL")},
		"db1# trireme status | grep -e FULL -e db3": {asLongAs("trireme status | grep FULL")},
		"db2# trireme cert renew":                   {"db2# chmod 644 /var/lib/trireme/tls/ca.key"},
		"db2# trireme backup --to /mnt/backup/shop": {"healthy 3", "db2# mkdir -p /mnt/backup"},
		"db2# trireme backup list /mnt/backup/shop | tail -n 1": {
			`db2# until [ "$(trireme backup list /mnt/backup/shop)" != "$(cat /tmp/listed)" ]; do sleep 0.2; done`},
		"db1# trireme status | grep -A 1 'raft log'": {
			`db2# sed -i -e '/log_segment/s/.*/log_segment = "1MiB"/' -e '/log_max/s/.*/log_max = "2MiB"/' ` +
				"/etc/trireme/trireme.toml; systemctl restart trireme",
			"healthy 3", "db3# systemctl stop trireme",
			`db1# for i in 20000 40000; do trireme mysql <<<"INSERT INTO shop.pages SELECT id + $i, page FROM shop.pages"; done`,
			until("trireme status | grep 'raft log'")},
		"db1# trireme status | grep 'raft log'": {"healthy 3", asLongAs("trireme status | grep 'raft log'")},
		"db1# trireme history | grep -A 6 ' apply-error '": append(slices.Clone(missingRow),
			until("trireme history | grep 'db2 *seeded'"), "healthy 3"),
		"db1# trireme status | grep -A 5 BLOCKED": checkFails,
	}, instead: map[string]string{
		"db2# trireme mysql -- -e 'KILL 26'": "trireme mysql -- -N <<<'SELECT DISTINCT sql_kill_blocking_connection FROM " +
			"sys.schema_table_lock_waits' | trireme mysql",
		"db2# systemctl start trireme-backup": "trireme backup list /mnt/backup/shop >/tmp/listed; " +
			"setsid trireme backup --to /mnt/backup/shop --follow >/tmp/backup.log 2>&1 </dev/null &",
	}, fails: []string{"db1# trireme status", "db1# " + morePages, "db2# trireme cert renew",
		"db1# trireme status | grep 'raft log'"}},

	{page: "ops/failures.md", hosts: "db1 db2 db3", cluster: "db1 db2 db3", failpoints: true, steps: map[string][]string{
		"db1# trireme status | grep -A 2 'WARNING: db1'": {account, orders, "slow db1 db3 350ms",
			until("trireme status | grep 'WARNING: db1'")},
		"db1# trireme status | grep 'DISK FULL'": append(append([]string{"slow db1 db3 0s", "healthy 3"},
			smallDisk("db3", 15_000_000)...), until("trireme status | grep 'DISK FULL'")),
		"db1# trireme status | grep -e FULL -e db3": {asLongAs("trireme status | grep FULL")},
		"db1# trireme status | grep -A 7 '^db2: '": append([]string{"healthy 3", lead,
			"healthy 3"}, append(slices.Clone(missingRow), until("trireme status | grep '^db2: '"))...),
		"db1# trireme history | grep 'db2 *seed'": {until("trireme history | grep 'db2 *seeded'"), "healthy 3"},
		"db1# trireme status | grep -A 7 BLOCKED": cascadeFails,
		"db1# trireme void":                       append([]string{"healthy 3"}, checkFails...),
		"db1# trireme status | grep -A 5 '^db3: '": {"healthy 3", lead, "healthy 3",
			`db1# trireme mysql <<<"XA START 'x1'; UPDATE shop.orders SET n = 0 WHERE id = 1; XA END 'x1'; XA PREPARE 'x1'"`,
			`db3# until trireme mysql <<<"XA RECOVER" | grep x1; do sleep 0.1; done; trireme mysql <<<"XA COMMIT 'x1'"`,
			until("trireme status | grep '^db3: '")},
		"db1# trireme status | grep '^db3 '": {"healthy 3"},
		"db1# journalctl -u trireme | grep guard:": {
			lead, "db1# pid=$(pgrep -o -f 'trireme node'); kill -STOP $pid; " +
				"while pgrep -f 'defaults-fil[e]' >/dev/null; do sleep 0.1; done; kill -CONT $pid",
			until("trireme history | grep ' guard '")},
	}, instead: map[string]string{
		"db1# vi /etc/trireme/trireme.toml": "for host in db1 db2 db3; do ssh root@$host " +
			`"sed -i '/election_timeout_ms/s/.*/election_timeout_ms = 2000/' /etc/trireme/trireme.toml"; done`,
	}, fails: []string{"db1# trireme status | grep WARNING"}},

	{page: "ops/check.md", hosts: "db1 db2 db3 late1", cluster: "db1 db2 db3", steps: map[string][]string{
		"db1# TRIREME_MYSQL_PASSWORD=… trireme check": {account, orders},
		"db1# TRIREME_MYSQL_PASSWORD=… trireme check --table shop": {
			onlyThere("db2", "UPDATE shop.orders SET n = 3 WHERE id = 1")},
	}, fails: []string{"db1# TRIREME_MYSQL_PASSWORD=… trireme check --table shop"}},

	{page: "ops/advise.md", steps: map[string][]string{
		"db1# TRIREME_MYSQL_PASSWORD=… trireme advise": {"healthy 3", `db1# trireme mysql <<<"CREATE TABLE shop.visits ` +
			`(n INT, who VARCHAR(20)); SET cte_max_recursion_depth = 5000; INSERT INTO shop.visits ` +
			`WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 5000) SELECT i, 'ann' FROM n; ` +
			`UPDATE shop.visits SET n = -n WHERE n % 2 = 0; ANALYZE TABLE shop.visits"`},
	}, fails: []string{"db1# TRIREME_MYSQL_PASSWORD=… trireme advise"}},

	{page: "ops/delayed.md", steps: map[string][]string{
		"db1# trireme config edit apply_delay.late1=1h": {
			until("trireme status | grep 'late1 *learner *healthy'")},
		"db1# trireme status | grep -A 1 'late1 is'": {
			`db1# trireme mysql <<<"INSERT INTO shop.orders VALUES (4, 'sofa', 1); DELETE FROM shop.orders WHERE id > 1"`,
			until("trireme status | grep 'the next transaction'")},
		"db1# trireme delay late1":                        {until("trireme delay late1 | grep 'has STOPPED'")},
		"db1# trireme config edit apply_delay.late1=none": {asLongAs("trireme delay late1 | grep 'it lags'")},
		"db1# trireme status | grep late1":                {asLongAs("trireme status | grep 'late1 is'")},
	}, instead: map[string]string{
		"db1# trireme delay late1 --stop-before 0000…:16": "trireme delay late1 --stop-before " +
			`$(mysqlbinlog -v --base64-output=decode-rows /var/lib/trireme/raft/*.log | grep -e GTID_NEXT -e '### DELETE' | ` +
			`grep -m 1 -B 1 DELETE | cut -d "'" -f 2 | head -n 1)`,
	}},

	{page: "ops/encryption.md", hosts: "db1", cluster: "db1", steps: map[string][]string{
		"db1# trireme log verify /var/lib/trireme":     {"healthy 1", account},
		"db1# trireme log verify /var/lib/trireme (2)": {"db1# systemctl restart trireme", "healthy 1", orders},
		"db1# journalctl -u trireme -n 1": {
			"db1# cp -a /etc/trireme/log.keys /root; sed -i '$d' /etc/trireme/log.keys; systemctl restart trireme || true"},
		"": {"db1# mv /root/log.keys /etc/trireme; systemctl restart trireme", "healthy 1"},
	}, instead: map[string]string{"db1# vi /etc/trireme/trireme.toml": `sed -i '/log_key_file/s|.*|log_key_file = ` +
		`"/etc/trireme/log.keys"|' /etc/trireme/trireme.toml`}},

	// Not walked: the way back (--undo), which ends what the page has begun.
	{page: "ops/adopt.md", hosts: "db1 db2", steps: map[string][]string{
		"db1# trireme adopt --dry-run " + adopted + " --replica db2:3306 --cluster shop --name db1 --host db1": slices.Concat(
			plainServer("db1", 1), plainServer("db2", 2), []string{
				"db1# MYSQL_PWD= mysql -u root -S " + plainSocket + ` -e "ALTER USER root@localhost IDENTIFIED BY 'secret'; ` +
					`CREATE USER root IDENTIFIED BY 'secret'; GRANT ALL ON *.* TO root WITH GRANT OPTION; ` +
					`CREATE USER repl IDENTIFIED BY 'secret'; GRANT REPLICATION SLAVE ON *.* TO repl; CREATE DATABASE shop; ` +
					`CREATE TABLE shop.orders (id INT PRIMARY KEY, n INT); INSERT INTO shop.orders VALUES (1, 1)"`,
				"db2# MYSQL_PWD= mysql -u root -S " + plainSocket + ` -e "SET GLOBAL super_read_only = ON; ` +
					`CHANGE REPLICATION SOURCE TO SOURCE_HOST = 'db1', SOURCE_USER = 'repl', SOURCE_PASSWORD = 'secret', ` +
					`SOURCE_AUTO_POSITION = 1, GET_SOURCE_PUBLIC_KEY = 1; START REPLICA"; ` +
					"until mysql -u root -S " + plainSocket + " -e 'SELECT * FROM shop.orders'; do sleep 0.1; done"}),
		"db1# trireme add db2": {"healthy 1"},
		"db1# trireme status":  {"healthy 2"},
	}},
}
