package walk

import (
	"fmt"
	"strings"
)

// join makes steps: a host becomes a member.
func join(host string, role ...string) []string {
	if len(role) == 0 && strings.HasPrefix(host, "l") {
		role = []string{"logger"}
	}
	as := ""
	if len(role) > 0 {
		as = " --role " + role[0]
	}
	return []string{"db1# trireme add " + host + as + " >/tmp/" + host, "join " + host + as,
		host + "# systemctl enable --now trireme"}
}

// Steps of several pages.
const (
	account = `db1# trireme mysql <<<"CREATE DATABASE shop; CREATE USER shop IDENTIFIED BY 'secret'; ` +
		`GRANT ALL ON shop.* TO shop; CREATE TABLE shop.stock (id INT PRIMARY KEY, n INT); ` +
		`INSERT INTO shop.stock VALUES (7, 1)"`
	orders = `db1# trireme mysql <<<"CREATE TABLE shop.orders (id INT PRIMARY KEY, item VARCHAR(20), n INT); ` +
		`INSERT INTO shop.orders VALUES (1, 'chair', 4), (2, 'table', 1), (3, 'lamp', 2)"`
	powerOff   = "# kill -9 -1" // of a host
	killServer = "# kill -9 $(pgrep -o -f defaults-file)"
	killLeader = "db1# n=$(trireme history | grep -c ' failover '); kill -9 $(pgrep -o -f defaults-file); " +
		"until [ $(trireme history | grep -c ' failover ') -gt $n ]; do sleep 0.1; done"
	lead = "db1# until trireme status | head -n 1 | grep -q 'leader db1'; do " +
		"trireme switchover --to db1 >/dev/null 2>&1; sleep 0.2; done"
)

// onlyThere is a step: a statement that is run on a host's server without the daemon's knowledge.
func onlyThere(host, statement string) string {
	return host + `# trireme mysql <<<"SET sql_log_bin = 0; SET GLOBAL super_read_only = 0; ` + statement +
		`; SET GLOBAL super_read_only = 1"`
}

// until and asLongAs are steps: they wait until a command succeeds, or does not any more.
func until(command string) string {
	return "db1# until " + command + " >/dev/null; do sleep 0.1; done"
}

func asLongAs(command string) string {
	return "db1# while " + command + " >/dev/null; do sleep 0.1; done"
}

// lock and unlock are steps: a session locks a table on a host's server, and ends.
func lock(host, table string) string {
	return host + `# setsid bash -c "trireme mysql <<<'LOCK TABLES ` + table + ` READ; SELECT SLEEP(600)'" ` +
		`>/dev/null 2>&1 </dev/null & until trireme mysql <<<'SHOW PROCESSLIST' | grep -q 'User sleep'; do sleep 0.1; done`
}

func unlock(host string) string {
	return host + `# trireme mysql -- -N <<<"SELECT CONCAT('KILL ', id, ';') FROM information_schema.processlist ` +
		`WHERE info LIKE 'SELECT SLEEP%'" | trireme mysql`
}

// smallDisk are steps: a host's node gets a disk of its own, and a file leaves so many bytes of it.
func smallDisk(host string, left int) []string {
	return []string{host + "# systemctl stop trireme; cp -a /var/lib/trireme /tmp/x && " +
		"mount -t tmpfs -o size=1500M,mode=711 tmpfs /var/lib/trireme && cp -a /tmp/x/. /var/lib/trireme && rm -rf /tmp/x; " +
		"systemctl start trireme", "healthy 3", fill(host, left)}
}

func fill(host string, left int) string {
	return fmt.Sprintf("%s# cd /var/lib/trireme; fallocate -l $(( $(df --output=avail -B1 . | tail -n 1) + "+
		"$(stat -c %%s other.iso 2>/dev/null || echo 0) - %d )) other.iso", host, left)
}

// blocked are steps: the leader's daemon dies between the commit of an entry that no applier can carry out and its
// acknowledgement.
func blocked(before, statement string) []string {
	return []string{lead, "healthy 3", `db1# trireme mysql <<<"` + before + `"`,
		"healthy 3", "arm db1 ack.before=kill", `db1# trireme mysql <<<"` + statement + `" || true`,
		until(`trireme status --json | tr -d ' \n' | grep '"nodes":\["db1","db2","db3"\]'`)}
}

var (
	// a session with another setting makes it true, and no applier has one
	checkFails = blocked("CREATE TABLE shop.prices (third DECIMAL(20,10), price INT PRIMARY KEY, CHECK (third = price/3))",
		"SET div_precision_increment = 8; INSERT INTO shop.prices VALUES (0.33333333, 1)")
	// the trigger deletes the row's parent, whose cascade comes back to the row
	cascadeFails = blocked("CREATE TABLE shop.parent (id INT PRIMARY KEY); CREATE TABLE shop.child (id INT PRIMARY KEY, "+
		"p INT, FOREIGN KEY (p) REFERENCES shop.parent (id) ON DELETE CASCADE); INSERT INTO shop.parent VALUES (1), (2); "+
		"INSERT INTO shop.child VALUES (1, 1), (2, 2); CREATE TRIGGER shop.up BEFORE DELETE ON shop.child FOR EACH ROW "+
		"DELETE FROM shop.parent WHERE id = OLD.p", "DELETE FROM shop.child WHERE id = 1")
	missingRow = []string{onlyThere("db2", "DELETE FROM shop.orders WHERE id = 3"),
		`db1# trireme mysql <<<"UPDATE shop.orders SET n = n + 1 WHERE id = 3"`}
)

const (
	// ends of commands that pages show
	morePages = "mysql -h db1 -P 6446 -u shop -p -e 'INSERT INTO shop.pages SELECT id + 1000, page FROM shop.pages'"
	adopted   = "--socket /var/run/mysqld/mysqld.sock --user root --password-file /root/mysql.pw"

	plainSocket = "/var/run/mysqld/mysqld.sock"
)

// plainServer are steps: a host has a MySQL server that knows nothing of Trireme.
func plainServer(host string, id int) []string {
	return []string{host + "# umask 077; echo secret >/root/mysql.pw", fmt.Sprintf("%s# mkdir -p /etc/mysql "+
		"/var/lib/mysql /var/lib/mysql-files /run/mysqld /var/log/mysql; chown mysql: /var/lib/mysql /run/mysqld /var/log/mysql; "+
		"printf '[mysqld]\nuser=mysql\ndatadir=/var/lib/mysql\n"+
		"socket=%s\npid_file=/run/mysqld/mysqld.pid\nserver_id=%d\nlog_error=/var/log/mysql/error.log\ngtid_mode=ON\nenforce_gtid_consistency=ON\n"+
		"report_host=%s\nmysqlx=OFF\nmax_connections=500\n' >/etc/mysql/plain.cnf && "+
		"mysqld --defaults-file=/etc/mysql/plain.cnf --initialize-insecure && "+
		"{ setsid mysqld --defaults-file=/etc/mysql/plain.cnf >/dev/null 2>&1 </dev/null & } && "+
		"until MYSQL_PWD= mysqladmin -u root -S %s ping >/dev/null 2>&1; do sleep 0.1; done", host, plainSocket, id, host,
		plainSocket)}
}
