package robustness

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"trireme/internal/api"
	"trireme/internal/base/config"
	"trireme/internal/mysql/mysqld"
	"trireme/lab/needs"
	"trireme/lab/testkit"
	"trireme/lab/verify"
)

const (
	scriptLimit  = 90 * time.Second // of a script on the plain server: what takes longer is left out
	scriptSlower = 10               // times as long as the plain server a cluster may take, and a minute more

	scriptReasons = "testdata/mysqlsuites/differences.txt"
	scriptShort   = "testdata/mysqlsuites/short.txt"
)

// scriptOptions are what scripts take for granted.
var scriptOptions = map[string]string{
	"local_infile":    "ON",
	"max_connections": "151",
}

// TestMySQLSuites runs MySQL's own test scripts, and the tests of mysql_client_test, on a plain server with the
// settings of a node, through 6446 and through 6450. What they print must be the same, but for what
// testdata/mysqlsuites/differences.txt has a reason for. After each, all nodes must be healthy and equal, and no
// follower may have stopped on the way, again but for those with a reason, which heal.
//
// Scripts read over one connection what they wrote over another, so on 6450 they read at BEFORE. Those of
// mysql_client_test use one connection each and read at EVENTUAL: at BEFORE sessions that are not followed are refused.
//
// Left out are scripts that scriptRule does not let pass; those that the plain server does not come to the end of (an
// engine that is switched off, a variable that is not there); and those that print something else each time on it.
// make test-long runs those of testdata/mysqlsuites/short.txt, which takes minutes, the soak all. TRIREME_SCRIPTS names
// some to run, separated by spaces.
func TestMySQLSuites(t *testing.T) {
	needs.Long(t)
	t.Parallel()
	r, list := newSuiteRun(t)
	r.all(list, func(ctx context.Context, p plainRun) {
		for _, to := range r.onNodes {
			r.one(ctx, p, to)
			if r.known["stop "+p.String()] != "" { // once is enough: a node that heals again waits longer each time
				break
			}
		}
	})
	least := len(list) * 9 / 10
	switch {
	case os.Getenv("TRIREME_SCRIPTS") != "": // who names them knows which of them come to their end
		least = 1
	case soak():
		least = 800
	}
	if r.ran["6446"] < least {
		t.Errorf("%d of %d scripts were run", r.ran["6446"], len(list))
	}
}

// newSuiteRun starts the servers, and says which scripts are to run.
func newSuiteRun(t *testing.T) (*suiteRun, []script) {
	t.Helper()
	suites := needs.Suites(t)
	fit, left := scripts(t, suites.Scripts())
	t.Logf("%d scripts fit; left out by the rule: %v", len(fit), left)
	fit = chosenScripts(t, append(clientTests(t, suites), fit...))

	loads, err := filepath.EvalSymlinks(filepath.Join(suites.Scripts(), "std_data"))
	must(t, err)
	var options map[string]string // of each node's mysqld
	c := createShape(t, shape{nodes: 3, tune: func(n *config.Node) {
		options = maps.Clone(n.MySQL.Options)
		maps.Copy(options, scriptOptions)
		options["secure_file_priv"] = loads
		n.MySQL.Options = options
		if n.Name == "n2" {
			n.Router.Consistency = "BEFORE"
		}
	}})
	plain := testkit.StartServer(t, plainOptions(options)...)
	out := kit.NewDir()
	runner := func(name, dir string, port, client int) scriptRunner {
		return scriptRunner{suites: suites, name: name, port: port, client: client, socket: socketTo(t, port),
			dir: filepath.Join(out, dir)}
	}
	r := &suiteRun{t: t, c: c, known: reasons(t, scriptReasons), left: map[string]int{}, ran: map[string]int{}}
	r.plain = scriptServer{db: plain.DB, scriptRunner: runner("one server", "plain", plain.Port, plain.Port)}
	r.onNodes = []scriptRunner{runner("6446", "rw", c.Node("n1").Ports.RW, c.Node("n1").Ports.RW),
		runner("6450", "split", c.Node("n2").Ports.Split, c.Node("n3").Ports.Split)}
	must(t, r.plain.begin(t.Context()))
	leader := c.healthy()
	r.leader = leader.Name
	admin, err := c.Admin(leader)
	must(t, err)
	t.Cleanup(func() { _ = r.node.db.Close() })
	r.node = scriptServer{db: admin}
	must(t, r.node.begin(t.Context()))
	dirs := []string{plain.Dir}
	for _, n := range c.DataNodes() {
		dirs = append(dirs, n.Dir)
	}
	for _, dir := range dirs { // scripts name ../../std_data, as seen from the data directory
		must(t, os.Symlink(filepath.Join(suites.Scripts(), "std_data"), filepath.Join(dir, "std_data")))
	}
	return r, fit
}

// chosenScripts are those that this run is to have.
func chosenScripts(t *testing.T, fit []script) (chosen []script) {
	var want []string
	switch list := os.Getenv("TRIREME_SCRIPTS"); {
	case list != "":
		want = strings.Fields(list)
	case soak():
		return fit
	default:
		b, err := os.ReadFile(scriptShort)
		must(t, err)
		want = strings.Fields(string(b))
	}
	for _, name := range want {
		i := slices.IndexFunc(fit, func(s script) bool { return s.String() == name })
		if i < 0 {
			t.Fatalf("%s is no script that fits", name)
		}
		chosen = append(chosen, fit[i])
	}
	return chosen
}

// plainOptions are a node's settings for a server without a daemon.
func plainOptions(options map[string]string) (out []string) {
	settings := mysqld.Chosen(mysqld.DurabilityLog)
	maps.Copy(settings, options)
	for name := range settings {
		bare := strings.TrimPrefix(name, "loose_")
		notHere := []string{"plugin_load_add", "read_only", "super_read_only", "offline_mode", "event_scheduler",
			"replicate_same_server_id"}
		if strings.HasPrefix(bare, "rpl_semi_sync") || slices.Contains(notHere, bare) {
			delete(settings, name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		out = append(out, "--"+strings.ReplaceAll(name, "_", "-")+"="+settings[name])
	}
	return out
}

// suiteRun is one run of many scripts.
type suiteRun struct {
	t          *testing.T
	c          *cluster
	leader     string
	plain      scriptServer
	onPlainNow sync.Mutex   // one script at a time
	node       scriptServer // the leader
	onNodes    []scriptRunner
	known      map[string]string // differences with a reason
	stops      int               // of followers so far
	left       map[string]int    // why scripts were left out
	ran        map[string]int    // and how often one ran, by name of the address
}

// plainRun is what the plain server said.
type plainRun struct {
	script
	transcript string
	took       time.Duration
}

// all runs scripts, the plain server's ahead of the cluster's.
func (r *suiteRun) all(list []script, onNodes func(context.Context, plainRun)) {
	r.t.Helper()
	ready := make(chan plainRun, 8)
	stopped := make(chan error, 1)
	ctx, cancel := context.WithCancel(r.t.Context())
	defer cancel()
	left := map[string]int{}
	go func() {
		defer close(ready)
		for _, s := range list {
			p, err := r.onPlain(ctx, s)
			if errors.Is(err, errScript) {
				left["one server does not come to its end"]++
				r.t.Logf("%s: one server does not come to its end: %.200s", s, lastLine(p.transcript))
				continue
			}
			if err != nil {
				stopped <- fmt.Errorf("%s on one server: %w", s, err)
				return
			}
			select {
			case ready <- p:
			case <-ctx.Done():
				return
			}
		}
	}()
	for p := range ready {
		onNodes(ctx, p)
	}
	select {
	case err := <-stopped:
		r.t.Fatal(err)
	default:
	}
	maps.Copy(r.left, left)
	r.t.Logf("scripts that were run: %v; left out while they ran: %v", r.ran, r.left)
}

func lastLine(text string) string {
	text = strings.TrimSpace(text)
	return text[strings.LastIndexByte(text, '\n')+1:]
}

func (r *suiteRun) onPlain(ctx context.Context, s script) (plainRun, error) {
	r.onPlainNow.Lock()
	defer r.onPlainNow.Unlock()
	if err := r.plain.clean(ctx); err != nil {
		return plainRun{}, err
	}
	limited, cancel := context.WithTimeout(ctx, scriptLimit)
	defer cancel()
	began := time.Now()
	text, err := r.plain.run(limited, s)
	return plainRun{s, text, time.Since(began)}, err
}

// one runs a script on the cluster and judges it.
func (r *suiteRun) one(ctx context.Context, p plainRun, to scriptRunner) {
	began := time.Now()
	got, err := r.onCluster(ctx, p, to, func(<-chan struct{}) {})
	took := time.Since(began)
	r.nodes(ctx, p.script, to)
	r.t.Logf("%s through %s: %.1f s, then %.1f s until the nodes were equal; one server %.1f s", p, to.name,
		took.Seconds(), (time.Since(began) - took).Seconds(), p.took.Seconds())
	if v := r.c.view(); v.Leader != r.leader {
		r.t.Fatalf("%s through %s: leadership moved from %s to %q", p, to.name, r.leader, v.Leader)
	}
	r.judge(ctx, p, to, got, err)
}

// onCluster runs a script on the cluster, and at the same time what happens meanwhile, whose channel is closed when the
// script has ended.
func (r *suiteRun) onCluster(ctx context.Context, p plainRun, to scriptRunner, meanwhile func(<-chan struct{})) (string,
	error) {
	must(r.t, r.node.clean(ctx))
	limited, cancel := context.WithTimeout(ctx, scriptSlower*p.took+time.Minute)
	defer cancel()
	ended, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		meanwhile(ended)
	}()
	got, err := to.run(limited, p.script)
	close(ended)
	<-done
	r.ran[to.name]++
	return got, err
}

// judge compares a script's transcript with the plain server's.
func (r *suiteRun) judge(ctx context.Context, p plainRun, to scriptRunner, got string, err error) {
	t := r.t
	if got == p.transcript && err == nil {
		return
	}
	key := to.name + " " + p.String()
	keepScripts(t, key, p.transcript, got)
	if why := r.known[key]; why != "" {
		t.Logf("%s differs: %s", key, why)
		return
	}
	again, err := r.onPlain(ctx, p.script)
	if err != nil || again.transcript != p.transcript {
		r.left["one server says something else each time"]++
		t.Logf("%s: one server says something else each time", p)
		return
	}
	t.Errorf("%s differs: %s", key, firstDifference(p.transcript, got))
}

// nodes waits until all nodes are healthy and equal, and checks that no follower had to stop on the way.
func (r *suiteRun) nodes(ctx context.Context, s script, to scriptRunner) {
	t := r.t
	t.Helper()
	var nodes []verify.Endpoint
	defer func() { verify.CloseEndpoints(nodes) }()
	eventually(t, 3*healLimit, fmt.Sprintf("%s through %s: all nodes are healthy and equal", s, to.name), func() error {
		v, err := r.c.View(ctx)
		if err != nil {
			return err
		}
		for _, m := range v.Members {
			if m.ApplyError != nil || m.Seed != nil || m.State != api.StateHealthy {
				return fmt.Errorf("%s is %s: %s", m.Name, m.State, m.Reason)
			}
		}
		verify.CloseEndpoints(nodes)
		if nodes, err = r.c.Endpoints(); err != nil {
			return err
		}
		limited, cancel := context.WithTimeout(ctx, checkLimit/6)
		defer cancel()
		_, local, err := verify.WaitEqual(limited, nodes)
		if err == nil && local[r.leader] != "" { // what a slow machine's followers lack for some seconds looks the same
			return fmt.Errorf("followers lack %s", local[r.leader])
		}
		return err
	})
	problems, _, err := verify.Compare(ctx, nodes)
	if err != nil {
		t.Errorf("%s through %s: %v", s, to.name, err)
	}
	for _, p := range problems {
		t.Errorf("%s through %s: %s", s, to.name, p)
	}
	events := r.c.applyErrors()
	if len(events) > r.stops {
		if why := r.known["stop "+s.String()]; why != "" {
			t.Logf("%s through %s stopped followers, which have healed: %s", s, to.name, why)
		} else {
			t.Errorf("%s through %s stopped followers, which have healed: %+v", s, to.name, events[r.stops:])
		}
	}
	r.stops = len(events)
}

// keepScripts writes both transcripts where TRIREME_KEEP says.
func keepScripts(t *testing.T, key, want, got string) {
	dir := os.Getenv("TRIREME_KEEP")
	if dir == "" {
		return
	}
	dir = filepath.Join(dir, "mysqlsuites")
	name := filepath.Join(dir, strings.ReplaceAll(key, " ", "-"))
	must(t, errors.Join(os.MkdirAll(dir, 0o755), os.WriteFile(name+".want", []byte(want), 0o600),
		os.WriteFile(name+".got", []byte(got), 0o600)))
}

// scriptServer is a server that is made as scripts expect it, before each.
type scriptServer struct {
	scriptRunner
	db       *sql.DB // of an administrator
	accounts map[string]string
	globals  map[string]string
}

// begin notes what the server is like, and lets root in.
func (s *scriptServer) begin(ctx context.Context) (err error) {
	for _, q := range []string{"CREATE USER root@'127.0.0.1'", "GRANT ALL ON *.* TO root@'127.0.0.1' WITH GRANT OPTION"} {
		if _, err := s.db.ExecContext(ctx, q); err != nil {
			return err
		}
	}
	if s.accounts, err = verify.Accounts(ctx, s.db); err != nil {
		return err
	}
	s.globals, err = globals(ctx, s.db)
	return err
}

// globals are the variables that can be set.
func globals(ctx context.Context, db *sql.DB) (map[string]string, error) {
	rows, err := db.QueryContext(ctx,
		"SELECT VARIABLE_NAME, COALESCE(VARIABLE_VALUE, '') FROM performance_schema.global_variables "+
			"WHERE VARIABLE_NAME NOT LIKE 'gtid%' AND VARIABLE_NAME NOT LIKE 'rpl_semi%' AND VARIABLE_NAME NOT LIKE '%read_only'")
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	out := map[string]string{}
	for rows.Next() {
		var name, value string
		if err := rows.Scan(&name, &value); err != nil {
			return nil, err
		}
		out[name] = value
	}
	return out, rows.Err()
}

// clean takes away what a script has left.
func (s *scriptServer) clean(ctx context.Context) error {
	conn, err := s.db.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	now, err := globals(ctx, s.db)
	if err != nil {
		return err
	}
	var todo []string
	for name, value := range s.globals {
		if now[name] != value {
			todo = append(todo, fmt.Sprintf("SET GLOBAL %s = %s", name, settable(value)))
		}
	}
	schemas, err := s.db.QueryContext(ctx, "SELECT CONCAT('DROP DATABASE `', REPLACE(SCHEMA_NAME, '`', '``'), '`') "+
		"FROM information_schema.SCHEMATA "+
		"WHERE SCHEMA_NAME NOT IN ('mysql', 'sys', 'information_schema', 'performance_schema') "+
		"UNION ALL SELECT CONCAT('DROP SERVER `', Server_name, '`') FROM mysql.servers")
	if err != nil {
		return err
	}
	defer schemas.Close()
	for schemas.Next() {
		var q string
		if err := schemas.Scan(&q); err != nil {
			return err
		}
		todo = append(todo, q)
	}
	if err := schemas.Err(); err != nil {
		return err
	}
	accounts, err := verify.Accounts(ctx, s.db)
	if err != nil {
		return err
	}
	for who := range accounts {
		name, is := strings.CutPrefix(who, "account ")
		if _, had := s.accounts[who]; !is || had {
			continue
		}
		at := strings.LastIndexByte(name, '@')
		todo = append(todo, fmt.Sprintf("DROP USER `%s`@`%s`", name[:at], name[at+1:]))
	}
	// Scripts say which warnings of the server's log they expect; these are not looked at here.
	todo = append(todo, "FLUSH PRIVILEGES", "CREATE DATABASE test", "CREATE DATABASE mtr",
		"CREATE PROCEDURE mtr.add_suppression(pattern VARCHAR(255)) BEGIN END")
	for _, q := range append([]string{"SET foreign_key_checks = 0"}, todo...) {
		if _, err := conn.ExecContext(ctx, q); err != nil {
			return fmt.Errorf("%s: %w", q, err)
		}
	}
	_, err = conn.ExecContext(ctx, "SET foreign_key_checks = 1")
	return err
}

// settable writes a variable's value so that it can be set.
func settable(value string) string {
	if value != "" && strings.Trim(value, "0123456789.") == "" {
		return value
	}
	return "'" + strings.ReplaceAll(strings.ReplaceAll(value, `\`, `\\`), "'", "''") + "'"
}
