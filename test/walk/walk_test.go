package walk

import (
	"cmp"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"trireme/internal/api"
	"trireme/lab/needs"
	"trireme/lab/poll"
)

var paste = flag.Bool("paste", false, "put what is printed into the pages")

// A walk is one page, followed.
type walk struct {
	page  string // in docs
	hosts string // their names
	// cluster are those of them that are a healthy cluster when the page begins; db1 leads. A name that begins with l is
	// a logger's.
	cluster string
	// steps are what the page leaves to the reader, by the command before which it is done, once ("": at the end):
	//	HOST# COMMAND    is run until its end
	//	join HOST        with the token in its file (see join)
	//	healthy N        waits until so many nodes are, and another one of three could lead
	steps   map[string][]string
	instead map[string]string // what is run in place of a command
	skip    []string          // commands that are not run: they do not end, or are another case than those before
	fails   []string          // commands that end with another exit code than 0
}

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
	powerOff = "# kill -9 -1" // of a host
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
		"db1# trireme failover --to db2": {"healthy 3", "db1# trireme switchover --to db1", "healthy 3",
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
		`db2# trireme backup --to s3://backups/shop --follow --s3-endpoint https://s3.example.com \`,
		"db2# trireme backup prune /mnt/backup/shop --keep 4",
		"db2# trireme backup --to /mnt/backup/shop --follow --key-file /etc/trireme/backup.key"}},

	{page: "ops/upgrade.md", hosts: "db1 db2 db3", cluster: "db1 db2 db3", skip: []string{
		`db1# trireme upgrade --run 'ssh root@$TRIREME_HOST "apt-get install -y trireme && systemctl restart trireme"'`,
		"db1# trireme restart"}},

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
}

// elsewhere puts what these hosts have in the place of what they do not have: a mysqld under its own name, a terminal.
var elsewhere = strings.NewReplacer("$(pidof mysqld)", "$(pgrep -o -f defaults-file)", " -p ", " ")

// TestWalksFit: what a walk says of a command is said of one that its page shows.
func TestWalksFit(t *testing.T) {
	for _, w := range walks {
		p, err := readPage(filepath.Join("../../docs", w.page))
		if err != nil {
			t.Fatal(err)
		}
		shown := map[string]bool{"": true}
		for _, c := range p.commands {
			shown[c.name()] = true
		}
		said := slices.Concat(w.skip, w.fails, slices.Collect(maps.Keys(w.steps)), slices.Collect(maps.Keys(w.instead)))
		for _, name := range said {
			if !shown[name] {
				t.Errorf("%s shows no %q", w.page, name)
			}
		}
	}
}

// TestWalks follows the pages.
func TestWalks(t *testing.T) {
	needs.Long(t)
	for _, w := range walks {
		t.Run(strings.TrimSuffix(filepath.Base(w.page), ".md"), func(t *testing.T) { w.follow(t) })
	}
}

func (w *walk) follow(t *testing.T) {
	p, err := readPage(filepath.Join("../../docs", w.page))
	if err != nil {
		t.Fatal(err)
	}
	h := startHosts(t, strings.Fields(w.hosts)...)
	t.Cleanup(func() {
		if t.Failed() {
			for host := range h.pid {
				out, _ := h.run(host, "tail -n 10 "+unitLog, "")
				t.Logf("%s, the end of its log:\n%s", host, out)
			}
		}
	})
	if members := strings.Fields(w.cluster); len(members) > 0 {
		h.mustRun("db1", "trireme init --cluster shop --name db1 --host db1 && systemctl enable --now trireme", "")
		h.steps([]string{"healthy 1"})
		for _, host := range members[1:] {
			h.steps(join(host))
		}
		h.steps([]string{fmt.Sprint("healthy ", len(members))})
		for _, host := range members[1:] { // whose page says that somebody there has a credential
			h.mustRun(host, "umask 077; mkdir -p /root/.config/trireme && cat >/root/.config/trireme/shop",
				h.mustRun("db1", "cat /root/.config/trireme/shop", ""))
		}
	}
	joins, steps := "", maps.Clone(w.steps)
	for _, c := range p.commands {
		name := c.name()
		h.steps(steps[name])
		delete(steps, name)
		if slices.Contains(w.skip, name) {
			continue
		}
		text := cmp.Or(w.instead[name], elsewhere.Replace(c.text))
		var out string
		switch {
		case strings.HasPrefix(c.text, "trireme join"):
			out, err = h.run(c.host, text, joins)
		case c.client:
			out, err = h.run(c.host, text, strings.ReplaceAll(strings.Join(c.typed, "\n"), "'…'", "'secret'"))
		default:
			out, err = h.answer(c.host, text, c.typed)
		}
		if t := tokens.FindString(out); t != "" {
			joins = t
		}
		printed := slices.DeleteFunc(strings.Split(out, "\n"), func(line string) bool {
			return strings.HasPrefix(line, "waiting for ") // how far it is, while it lasts
		})
		want := p.wanted(c)
		if (err != nil) != slices.Contains(w.fails, name) {
			t.Errorf("%s:%d: %s: %v: %s", w.page, c.line+1, name, err, out)
			continue
		}
		if strings.HasPrefix(c.text, "trireme join") && len(want) > 0 && tokens.MatchString(want[0]) {
			printed = append(want[:1:1], printed...)
		}
		if c.client || len(want) == 0 || matches(trim(want), trim(printed)) {
			continue
		}
		if *paste {
			p.paste(c, trim(printed))
			continue
		}
		t.Errorf("%s:%d: %s prints\n%s\nand the page says\n%s", w.page, c.line+1, name, strings.Join(printed, "\n"),
			strings.Join(want, "\n"))
	}
	h.steps(steps[""])
	if *paste {
		if err := p.write(); err != nil {
			t.Fatal(err)
		}
	}
}

// steps does what a page leaves to the reader.
func (h *hosts) steps(steps []string) {
	h.t.Helper()
	for _, s := range steps {
		if as, is := strings.CutPrefix(s, "join "); is {
			host, role, _ := strings.Cut(as, " ")
			h.mustRun(host, "trireme join "+role+" --name "+host+" --host "+host+" -",
				tokens.FindString(h.mustRun("db1", "cat /tmp/"+host, "")))
			continue
		}
		if n, is := strings.CutPrefix(s, "healthy "); is {
			h.awaitHealthy(n)
			continue
		}
		host, command, _ := strings.Cut(s, "# ")
		h.mustRun(host, command, "")
	}
}

// awaitHealthy waits until n nodes, and no others, are healthy and have their roles.
func (h *hosts) awaitHealthy(n string) {
	h.t.Helper()
	err := poll.Within(h.t.Context(), 2*commandLimit, n+" healthy nodes", func(context.Context) error {
		out, err := h.run("db1", "trireme status --json", "")
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		var v api.ClusterView
		if err := json.Unmarshal([]byte(out), &v); err != nil {
			return err
		}
		up := 0
		for _, m := range v.Members {
			if m.State == api.StateHealthy && m.Role != api.RoleLearner && len(m.Warnings) == 0 {
				up++
			}
		}
		safe := up < 3 || v.Failover.To != "" || v.Pause != nil
		if fmt.Sprint(up) != n || len(v.Members) != up || v.Leader == "" || !safe {
			text, _ := h.run("db1", "trireme status", "")
			return fmt.Errorf("there are %d:\n%s", up, text)
		}
		return nil
	})
	if err != nil {
		h.t.Fatal(err)
	}
}

// trim leaves empty lines out at the beginning and the end.
func trim(lines []string) []string {
	return strings.Split(strings.Trim(strings.Join(lines, "\n"), "\n"), "\n")
}
