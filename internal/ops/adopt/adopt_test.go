package adopt

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"trireme/internal/base/config"
	"trireme/internal/mysql/gtid"
	"trireme/internal/mysql/mysqld"
	"trireme/internal/ops/setup"
)

const (
	sourceUUID  = "aaaaaaaa-aaaa-aaaa-aaaa-aaaaaaaaaaaa"
	replicaUUID = "bbbbbbbb-bbbb-bbbb-bbbb-bbbbbbbbbbbb"
)

func set(t *testing.T, text string) gtid.Set {
	t.Helper()
	s, err := gtid.ParseSet(text)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// sound is a source that can be adopted.
func sound(t *testing.T) *facts {
	v := mysqld.Version{Major: 9, Minor: 7, Patch: 4}
	return &facts{
		Version: v, UUID: sourceUUID, Executed: set(t, sourceUUID+":1-100"),
		Binary: mysqld.Binary{Path: "/usr/sbin/mysqld", Version: v}, Vars: map[string]string{"gtid_mode": "ON",
			"enforce_gtid_consistency": "ON", "log_bin": "ON", "binlog_format": "ROW", "datadir": "/var/lib/mysql/",
			"innodb_undo_directory": "./"},
		Local: true, SameFS: true, Process: mysqld.Foreign{Pid: 7, UID: 27},
	}
}

func follower(t *testing.T) remote {
	return remote{Addr: "db2:3306", UUID: replicaUUID, Version: mysqld.Version{Major: 9, Minor: 7, Patch: 4},
		Executed: set(t, sourceUUID+":1-99"),
		Channels: []channel{{Source: "db1:3306", SourceUUID: sourceUUID, IO: "Yes", SQL: "Yes"}}}
}

func TestChecks(t *testing.T) {
	for _, tt := range []struct {
		name   string
		spoil  func(*facts, *remote)
		uid    int
		result string // of the check
		check  string
		want   string // in what was found
	}{
		{name: "a mysqld of another series", spoil: func(f *facts, _ *remote) { f.Binary.Version.Minor = 6 }, check: "mysqld",
			result: Fail, want: "9.6.4"},
		{name: "an older mysqld", spoil: func(f *facts, _ *remote) { f.Binary.Version.Patch = 3 }, check: "mysqld",
			result: Fail, want: "9.7.3"},
		{name: "no mysqld", spoil: func(f *facts, _ *remote) { f.BinaryErr = "none found" }, check: "mysqld", result: Fail,
			want: "none found"},
		{name: "an untested series", spoil: func(f *facts, _ *remote) { f.Version.Minor, f.Binary.Version.Minor = 8, 8 },
			check: "mysqld", result: Warn, want: "9.8.4"},
		{name: "another host", spoil: func(f *facts, _ *remote) { f.Local = false }, check: "this host", result: Fail,
			want: "/var/lib/mysql"},
		{name: "another user", uid: 1000, spoil: func(*facts, *remote) {}, check: "this host", result: Fail,
			want: "of user 27"},
		{name: "its own user", uid: 27, spoil: func(*facts, *remote) {}, check: "this host", result: OK, want: "process 7"},
		{name: "systemd", spoil: func(f *facts, _ *remote) { f.Process.Unit = "mysql.service" }, check: "this host",
			result: Warn, want: "mysql.service"},
		{name: "another file system", spoil: func(f *facts, _ *remote) { f.SameFS = false }, check: "data directory",
			result: Fail, want: "another file system"},
		{name: "a mount point", spoil: func(f *facts, _ *remote) { f.Mounted = true }, check: "data directory", result: Fail,
			want: "mount point"},
		{name: "no rights", spoil: func(f *facts, _ *remote) { f.Reachable = "permission denied" }, check: "data directory",
			result: Fail, want: "denied"},
		{name: "GTIDs off", spoil: func(f *facts, _ *remote) { f.Vars["gtid_mode"] = "ON_PERMISSIVE" }, check: "GTIDs",
			result: Fail, want: "ON_PERMISSIVE"},
		{name: "statements", spoil: func(f *facts, _ *remote) { f.Vars["binlog_format"] = "MIXED" }, check: "binary log",
			result: Fail, want: "MIXED"},
		{name: "MyISAM", spoil: func(f *facts, _ *remote) { f.Tables = []string{"a.b (MyISAM)"} },
			check: "tables that cannot roll back", result: Fail, want: "a.b (MyISAM)"},
		{name: "undo elsewhere", spoil: func(f *facts, _ *remote) { f.Vars["innodb_undo_directory"] = "/undo" },
			check: "files outside of the data directory", result: Fail, want: "/undo"},
		{name: "a table elsewhere", spoil: func(f *facts, _ *remote) { f.Outside = []string{"/x/t.ibd"} },
			check: "files outside of the data directory", result: Fail, want: "/x/t.ibd"},
		{name: "encrypted redo", spoil: func(f *facts, _ *remote) { f.Vars["innodb_redo_log_encrypt"] = "ON" },
			check: "encryption at rest", result: Fail, want: "redo"},
		{name: "a keyring", spoil: func(f *facts, _ *remote) { f.Keyring = []string{"component_keyring_file"} },
			check: "encryption at rest", result: Fail, want: "keyring_file"},
		{name: "prepared XA", spoil: func(f *facts, _ *remote) { f.Prepared = 2 }, check: "prepared XA transactions",
			result: Fail, want: "2"},
		{name: "group replication", spoil: func(f *facts, _ *remote) { f.Group = 3 }, check: "group replication",
			result: Fail, want: "3 members"},
		{name: "a filter", spoil: func(f *facts, _ *remote) { f.Filters = []string{"binlog_do_db=a"} },
			check: "replication filters", result: Fail, want: "binlog_do_db"},
		{name: "old plugins", spoil: func(f *facts, _ *remote) { f.OldNames = true }, check: "semi-sync plugins",
			result: Fail, want: "old names"},
		{name: "dangerous accounts", spoil: func(f *facts, _ *remote) { f.Strong = []string{"'root'@'%'"} },
			check: "accounts with dangerous rights", result: Warn, want: "root"},
		{name: "bad settings", spoil: func(f *facts, _ *remote) { f.OptionErr = "unknown" }, check: "settings", result: Fail,
			want: "unknown"},
		{name: "a port in use", spoil: func(f *facts, _ *remote) { f.Ports = []string{":8008"} }, check: "ports in use",
			result: Fail, want: ":8008"},
		{name: "not the top", spoil: func(f *facts, _ *remote) { f.Channels = []channel{{Source: "db0:3306", IO: "Yes"}} },
			check: "source of the set", result: Fail, want: "db0:3306"},
		{name: "once a replica",
			spoil: func(f *facts, _ *remote) { f.Channels = []channel{{Source: "db0:3306", IO: "No", SQL: "No"}} },
			check: "source of the set", result: Warn, want: "stopped"},
		{name: "a replica that is not named", spoil: func(f *facts, _ *remote) { f.Connected = []string{replicaUUID, "c"} },
			check: "other replicas", result: Fail, want: "server_uuid c"},
		{name: "change-data capture", spoil: func(f *facts, _ *remote) {
			f.Connected, f.Readers = []string{replicaUUID}, []string{"cdc@h:1", "repl@db2:2"}
		}, check: "other readers of the binary log", result: Fail, want: "cdc@h:1, repl@db2:2; 1 of them"},
		{name: "accounts of replicas", spoil: func(f *facts, _ *remote) { f.Dumpers = []string{"'repl'@'%'"} },
			check: "accounts of replicas", result: Warn, want: "repl"},

		{name: "a replica", spoil: func(*facts, *remote) {}, check: "replica db2:3306", result: OK,
			want: "1 transactions to apply"},
		{name: "errant", spoil: func(_ *facts, r *remote) { r.Executed = set(t, sourceUUID+":1-99,"+replicaUUID+":1") },
			check: "replica db2:3306", result: Fail, want: replicaUUID + ":1"},
		{name: "two sources", spoil: func(_ *facts, r *remote) { r.Channels = append(r.Channels, channel{}) },
			check: "replica db2:3306", result: Fail, want: "2 sources"},
		{name: "another source", spoil: func(_ *facts, r *remote) { r.Channels[0].SourceUUID = "x" },
			check: "replica db2:3306", result: Fail, want: "does not replicate from this server"},
		{name: "an error", spoil: func(_ *facts, r *remote) { r.Channels[0].Error = "1062" }, check: "replica db2:3306",
			result: Fail, want: "1062"},
		{name: "stopped", spoil: func(_ *facts, r *remote) { r.Channels[0].SQL = "No" }, check: "replica db2:3306",
			result: Fail, want: "applier No"},
		{name: "unreachable", spoil: func(_ *facts, r *remote) { r.Problem = "refused" }, check: "replica db2:3306",
			result: Fail, want: "refused"},
		{name: "the source twice", spoil: func(_ *facts, r *remote) { r.UUID = sourceUUID }, check: "replica db2:3306",
			result: Fail, want: "the source itself"},
	} {
		f, r := sound(t), follower(t)
		tt.spoil(f, &r)
		checks := append(common(f, tt.uid), source(f, []remote{r})...)
		i := slices.IndexFunc(checks, func(c Check) bool { return c.Name == tt.check })
		if i < 0 {
			t.Errorf("%s: no check %q", tt.name, tt.check)
			continue
		}
		c := checks[i]
		if c.Result != tt.result || !strings.Contains(c.Found, tt.want) || (c.Result != OK) != (c.Do != "") {
			t.Errorf("%s: %+v, want %s with %q", tt.name, c, tt.result, tt.want)
		}
		if n := len(failed(checks)); (n != 0) != (tt.result == Fail) {
			t.Errorf("%s: %d checks failed: %+v", tt.name, n, failed(checks))
		}
	}
}

func TestReplicaChecks(t *testing.T) {
	for _, tt := range []struct {
		name   string
		f      facts
		result string
	}{
		{"stopped", facts{Channels: []channel{{IO: "No", SQL: "No"}}}, OK},
		{"never configured", facts{}, OK},
		{"running", facts{Channels: []channel{{IO: "Yes", SQL: "Yes"}}}, Warn},
		{"an error", facts{Channels: []channel{{IO: "No", SQL: "No", Error: "1062"}}}, Fail},
		{"two sources", facts{Channels: []channel{{}, {}}}, Fail},
	} {
		if c := replica(&tt.f)[0]; c.Result != tt.result {
			t.Errorf("%s: %+v", tt.name, c)
		}
	}
	if c := replica(&facts{Connected: []string{"x"}}); len(failed(c)) != 1 {
		t.Errorf("a replica with replicas: %+v", c)
	}
}

func TestTakeOver(t *testing.T) {
	f := sound(t)
	f.Loadable = []string{"audit_log"}
	for name, v := range map[string][2]string{ // value, source
		"max_connections": {"500", "GLOBAL"}, "innodb_buffer_pool_size": {"1073741824", "COMMAND_LINE"},
		"sync_binlog": {"1", ""}, "port": {"3306", "GLOBAL"}, "log_replica_updates": {"ON", ""},
		"gtid_mode": {"ON", "GLOBAL"}, "read_only": {"OFF", "DYNAMIC"}, "rpl_semi_sync_source_timeout": {"1000", "PERSISTED"},
		"rpl_semi_sync_source_trace_level": {"32", ""}, "slave_net_timeout": {"60", "GLOBAL"},
		"skip_name_resolve": {"OFF", ""}, "max_binlog_size": {"1073741824", ""}, "basedir": {"/usr/", "GLOBAL"},
		"ssl_ca": {"", "DYNAMIC"}, "audit_log_file": {"a", "GLOBAL"}, "validate_password.policy": {"LOW", "PERSISTED"},
		"table_open_cache": {"4000", ""}, "character_set_server": {"latin1", ""}, "time_zone": {"+00:00", ""},
		"collation_server": {"utf8mb4_0900_ai_ci", ""},
		// what a session has set for itself, what was set for all, and what the configuration says
		"wait_timeout": {"28800", "DYNAMIC"}, "lock_wait_timeout": {"50", "DYNAMIC"}, "max_execution_time": {"0", "GLOBAL"},
	} {
		f.Vars[name] = v[0]
		if v[1] != "" {
			f.Sources = merge(f.Sources, name, v[1])
		}
	}
	cfg := mysqldConfig(config.Node{Dir: "/n", MySQL: config.MySQL{Port: 3306, Durability: config.DurabilityLog}},
		config.NewSecrets(), f.Binary)
	taken, changes := takeOver(f, cfg)
	want := map[string]string{"max_connections": "500", "innodb_buffer_pool_size": "1073741824",
		"skip_name_resolve": "OFF", "character_set_server": "latin1",
		"lock_wait_timeout": "50", "max_execution_time": "0",
		"default_time_zone": "+00:00", "loose_audit_log_file": "a",
		"loose_validate_password.policy": "LOW"}
	if len(taken) != len(want) {
		t.Errorf("taken over: %v", taken)
	}
	for k, v := range want {
		if taken[k] != v {
			t.Errorf("%s: %q, want %q", k, taken[k], v)
		}
	}
	says := map[string]string{"sync_binlog": "0", "log_replica_updates": "OFF", "read_only": "ON",
		"rpl_semi_sync_source_timeout": "3153600000000", "slave_net_timeout": "", "basedir": "",
		"max_connections": "500"}
	for name, then := range says {
		i := slices.IndexFunc(changes, func(o OptionChange) bool { return o.Name == name })
		if i < 0 || changes[i].New != then {
			t.Errorf("%s is not said to become %q: %+v", name, then, changes)
		}
	}
	for _, same := range []string{"gtid_mode", "port", "max_binlog_size", "table_open_cache",
		"rpl_semi_sync_source_trace_level", "ssl_ca", "wait_timeout"} {
		if slices.ContainsFunc(changes, func(o OptionChange) bool { return o.Name == same }) {
			t.Errorf("%s is listed although nothing changes", same)
		}
	}
}

func merge(m map[string]string, k, v string) map[string]string {
	if m == nil {
		m = map[string]string{}
	}
	m[k] = v
	return m
}

// old makes the files of a server that has been stopped.
func old(t *testing.T, dir string) *facts {
	t.Helper()
	data, logs := filepath.Join(dir, "mysql"), filepath.Join(dir, "log")
	for _, p := range []string{"mysql/ibdata1", "mysql/mysqld-auto.cnf", "mysql/host-relay-bin.000002",
		"mysql/host-relay-bin-ch1.000001", "mysql/host-relay-bin.index",
		"log/bin.000001", "log/bin.000002", "log/bin.index", "log/binary.txt"} {
		p = filepath.Join(dir, p)
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return &facts{Vars: map[string]string{"datadir": data + "/", "log_bin_basename": filepath.Join(logs, "bin"),
		"log_bin_index":      filepath.Join(logs, "bin.index"),
		"relay_log_basename": filepath.Join(data, "host-relay-bin"),
		"relay_log_index":    filepath.Join(data, "host-relay-bin.index")}}
}

func tree(t *testing.T, dir string) string {
	t.Helper()
	var all []string
	err := filepath.WalkDir(dir, func(p string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			rel, _ := filepath.Rel(dir, p)
			all = append(all, rel)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(all, " ")
}

func TestMovesAndUndo(t *testing.T) {
	dir := t.TempDir()
	f := old(t, dir)
	before := tree(t, dir)
	node := filepath.Join(dir, "node")
	if err := os.MkdirAll(filepath.Join(node, "mysql"), 0o700); err != nil {
		t.Fatal(err)
	}
	j := &journal{DataDir: filepath.Join(dir, "mysql"), Command: []string{"mysqld", "--x"}, Locked: []string{"'repl'@'%'"}}
	var left []string
	if j.Moves, left = planMoves(f, node, filepath.Join(node, "mysql", "data")); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
	if err := j.save(node); err != nil {
		t.Fatal(err)
	}
	if err := j.carryOut(); err != nil {
		t.Fatal(err)
	}
	want :=
		"log/binary.txt node/before-adopt/adopted.json node/before-adopt/binlog/bin.000001 node/before-adopt/binlog/bin.000002 node/before-adopt/binlog/bin.index " +
			"node/before-adopt/mysqld-auto.cnf node/before-adopt/relay/host-relay-bin-ch1.000001 node/before-adopt/relay/host-relay-bin.000002 " +
			"node/before-adopt/relay/host-relay-bin.index node/mysql/data/ibdata1"
	if got := tree(t, dir); got != want {
		t.Errorf("moved to\n%s\nwant\n%s", got, want)
	}

	// Once the daemon has run, nothing is given back.
	state := filepath.Join(node, "node.json")
	if err := os.WriteFile(state, []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Undo(node); err == nil || !strings.Contains(err.Error(), "the daemon has run") {
		t.Errorf("undo after a start: %v", err)
	}
	// Nor when it has led, or has joined a cluster.
	for _, c := range []struct {
		bootstrap bool
		state     string
	}{{true, `{"led":[2]}`}, {true, `{"led`}, {false, `{"incarnation":1}`}} {
		id := config.Identity{Cluster: "c", ClusterID: 1, Name: "n1", ID: 1, Role: config.RoleVoter, Bootstrap: c.bootstrap}
		if err := errors.Join(id.Save(node), os.WriteFile(state, []byte(c.state), 0o600)); err != nil {
			t.Fatal(err)
		}
		if _, err := Undo(node); err == nil || !strings.Contains(err.Error(), "the daemon has run") {
			t.Errorf("undo after a start, %+v: %v", c, err)
		}
	}
	// A first start without success is no way without return: its mysqld never took a write.
	id := config.Identity{Cluster: "c", ClusterID: 1, Name: "n1", ID: 1, Role: config.RoleVoter, Bootstrap: true}
	auto := filepath.Join(node, "mysql", "data", "auto.cnf")
	if err := errors.Join(id.Save(node), os.WriteFile(state, []byte(`{"incarnation":3,"log_made":true}`), 0o600),
		os.Mkdir(filepath.Join(node, "raft"), 0o700),
		os.WriteFile(auto, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	lock, err := mysqld.Lock(node)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Undo(node); !errors.Is(err, mysqld.ErrLocked) {
		t.Errorf("undo under a daemon that runs: %v", err)
	}
	lock.Unlock()
	// Somebody has made a new data directory: it is not overwritten, and nothing of ours is removed.
	if err := os.MkdirAll(j.DataDir, 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := Undo(node); err == nil || !strings.Contains(err.Error(), "is there again") {
		t.Errorf("undo over a new data directory: %v", err)
	}
	if err := os.Remove(j.DataDir); err != nil {
		t.Fatal(err)
	}
	u, err := Undo(node)
	if err != nil {
		t.Fatal(err)
	}
	if got := tree(t, dir); got != before {
		t.Errorf("after undo\n%s\nbefore\n%s", got, before)
	}
	if u.DataDir != j.DataDir || !strings.Contains(u.Again, "mysqld --x") ||
		!strings.Contains(u.Again, "ALTER USER 'repl'@'%' ACCOUNT UNLOCK") ||
		!strings.Contains(u.Again, "RESET REPLICA ALL") {
		t.Errorf("%+v", u)
	}
	if _, err := Undo(node); err == nil || !strings.Contains(err.Error(), "holds no server") {
		t.Errorf("undo twice: %v", err)
	}
}

// TestCarryOutTakesBack: a rename that fails leaves everything where it was.
func TestCarryOutTakesBack(t *testing.T) {
	dir := t.TempDir()
	f := old(t, dir)
	before := tree(t, dir)
	node := filepath.Join(dir, "node")
	if err := os.MkdirAll(filepath.Join(node, "mysql", "data", "in the way"), 0o700); err != nil {
		t.Fatal(err)
	}
	j := &journal{}
	j.Moves, _ = planMoves(f, node, filepath.Join(node, "mysql", "data"))
	if err := j.carryOut(); err == nil {
		t.Fatal("no error")
	}
	if got := tree(t, dir); got != before {
		t.Errorf("after a failure\n%s\nbefore\n%s", got, before)
	}
	if err := j.discard(node); err == nil || !strings.Contains(err.Error(), "was not moved back") {
		t.Errorf("a folder in the way is taken for the data: %v", err)
	}
	if _, err := os.Stat(filepath.Join(node, setup.BeforeAdopt)); err != nil {
		t.Error("what could hold files was removed")
	}
}

// TestMovesFollowNoLink: mysqld's user may say that anything is a log, and put links into its folders at any time.
// Nothing of others is moved, nor anything to a place of others.
func TestMovesFollowNoLink(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root moves files of another user")
	}
	const nobody = 65534
	dir := t.TempDir()
	f := old(t, dir)
	f.Process.UID = nobody
	if err := filepath.WalkDir(dir,
		func(p string, _ os.DirEntry, err error) error { return errors.Join(err, os.Lchown(p, nobody, nobody)) }); err != nil {
		t.Fatal(err)
	}
	others, node, logs := t.TempDir(), filepath.Join(dir, "node"), filepath.Join(dir, "log")
	for _, p := range []string{"shadow", "bin.000001"} {
		if err := os.WriteFile(filepath.Join(others, p), []byte("root's"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.MkdirAll(filepath.Join(node, "mysql"), 0o700); err != nil {
		t.Fatal(err)
	}
	secret := filepath.Join(others, "shadow")
	f.Vars["relay_log_index"] = secret
	j := &journal{UID: nobody}
	var left []string
	if j.Moves, left = planMoves(f, node, filepath.Join(node, "mysql", "data")); !slices.Contains(left, secret) {
		t.Errorf("left: %v, without %s", left, secret)
	}
	swap := func() { // by mysqld's user, between two steps of root
		t.Helper()
		if err := errors.Join(os.Rename(logs, logs+"-real"), os.Symlink(others, logs)); err != nil {
			t.Fatal(err)
		}
	}
	swapBack := func() {
		t.Helper()
		if err := errors.Join(os.Remove(logs), os.Rename(logs+"-real", logs)); err != nil {
			t.Fatal(err)
		}
	}
	had := tree(t, others)
	swap()
	if err := j.carryOut(); err == nil {
		t.Error("moved by way of a link")
	}
	swapBack()
	if err := j.carryOut(); err != nil {
		t.Fatal(err)
	}
	swap()
	if err := j.takeBack(); err == nil {
		t.Error("moved back by way of a link")
	}
	if got := tree(t, others); got != had {
		t.Errorf("another folder holds %s, before: %s", got, had)
	}
	swapBack()
	if err := j.takeBack(); err != nil {
		t.Error(err)
	}
}
