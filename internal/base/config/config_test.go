package config

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

const minimal = `cluster = "c1"
name = "n1"
dir = "/var/lib/trireme"
[peer]
advertise = "db1:7306"
[api]
advertise = "db1:8008"
`

func TestMinimalFileHasDefaults(t *testing.T) {
	n, err := Parse("/etc/trireme/trireme.toml", []byte(minimal))
	if err != nil {
		t.Fatal(err)
	}
	want := Default()
	want.File, want.Cluster, want.Name, want.Dir = "/etc/trireme/trireme.toml", "c1", "n1", "/var/lib/trireme"
	want.Peer.Advertise, want.API.Advertise = "db1:7306", "db1:8008"
	if !reflect.DeepEqual(n, want) {
		t.Errorf("got  %+v\nwant %+v", n, want)
	}
	if n.MySQL.Port != 3306 || n.Router.RWPort != 6446 || n.Router.ROPort != 6447 ||
		n.Raft.ElectionTimeout() != time.Second ||
		n.Raft.Heartbeat() != 100*time.Millisecond || n.Raft.LogCache != 64*MiB || n.MySQL.Durability != DurabilityLog {
		t.Errorf("defaults %+v", n)
	}
	if n.MySQLHost() != "db1" || n.Router.RWAddr() != "0.0.0.0:6446" || n.Router.ROAddr() != "0.0.0.0:6447" {
		t.Errorf("addresses %s %s %s", n.MySQLHost(), n.Router.RWAddr(), n.Router.ROAddr())
	}
}

func TestRelativePathsAreFromTheFile(t *testing.T) {
	text := strings.Replace(minimal, `"/var/lib/trireme"`, `"data"`, 1) + "[mysql]\nbinary = \"../bin/mysqld\"\n"
	n, err := Parse("/opt/t/trireme.toml", []byte(text))
	if err != nil || n.Dir != "/opt/t/data" || n.MySQL.Binary != "/opt/bin/mysqld" {
		t.Errorf("%s %s %v", n.Dir, n.MySQL.Binary, err)
	}
	n, err = Parse("/opt/t/trireme.toml", []byte(strings.Replace(text, "../bin/mysqld", "mysqld-9", 1)))
	if err != nil || n.MySQL.Binary != "mysqld-9" {
		t.Errorf("a bare name is for PATH: %s %v", n.MySQL.Binary, err)
	}
}

// A file from before the change stream had a port may use that for something else: it is as good as it was.
func TestStreamPortOfAnOldFile(t *testing.T) {
	old := strings.Replace(minimal, "[peer]\n", "[peer]\nlisten = \":7307\"\n", 1)
	n, err := Parse("/f.toml", []byte(old))
	if err != nil || n.Router.StreamPort != 0 || n.Router.StreamAddr() != "" {
		t.Errorf("port %d, %v", n.Router.StreamPort, err)
	}
	if _, err := Parse("/f.toml", []byte(old+"[router]\nstream_port = 7307\n")); err == nil {
		t.Error("one that asks for both is taken")
	}
}

// TestVIP: one text is a list of one, and what Render writes is read back.
func TestVIP(t *testing.T) {
	n, err := Parse("/f.toml",
		[]byte(minimal+"[mysql]\nbind = \"*\"\n[vip]\nrw = \"10.0.0.100/24\"\nro = [\"10.0.0.101/24\", \"fd00::1/64\"]\n"))
	if err != nil {
		t.Fatal(err)
	}
	rw, ro, err := n.VIP.Addresses()
	if err != nil || len(rw) != 1 || len(ro) != 2 || rw[0].String() != "10.0.0.100/24" || ro[1].String() != "fd00::1/64" {
		t.Errorf("%v %v %v", rw, ro, err)
	}
	again, err := Parse("/f.toml", Render(n))
	if err != nil || !reflect.DeepEqual(again, n) {
		t.Errorf("rendered and read: %+v, %v\nwant %+v", again, err, n)
	}
}

// TestMistakes: one clear error each, with file, line and what to do.
func TestMistakes(t *testing.T) {
	for _, tc := range []struct {
		name, text, want string
	}{
		{"not TOML", minimal + "[mysql\n", "not valid TOML: expected"},
		{"twice", "name = \"a\"\n" + minimal, "f.toml:3: not valid TOML"},
		{"unknown key", minimal + "[mysql]\nprot = 3307\n",
			"f.toml:9: mysql.prot: unknown setting; did you mean mysql.port?"},
		{"unknown section", minimal + "[mysqld]\nport = 3307\n", "f.toml:8: mysqld: unknown setting; did you mean mysql?"},
		{"unknown top key", "clutser = \"x\"\n" + minimal, "f.toml:1: clutser: unknown setting; did you mean cluster?"},
		{"key of another section", minimal + "[raft]\nrw_port = 1\n",
			"f.toml:9: raft.rw_port: unknown setting; did you mean router.rw_port?"},
		{"like nothing", minimal + "[raft]\nquux = 1\n", "docs/configuration.md"},
		{"nested too deep", minimal + "[mysql.port]\nx = 1\n", "f.toml:8: mysql.port: map[x:1] is not a whole number"},
		{"size without unit", minimal + "[raft]\nlog_cache = 64\n", `f.toml:9: raft.log_cache: 64 has no unit`},
		{"unknown unit", minimal + "[raft]\nlog_cache = \"64MB\"\n",
			`f.toml:9: raft.log_cache: "64MB" is not a size; write a whole number with a unit, such as "64MiB"`},
		{"huge size", minimal + "[raft]\nlog_max = \"99999999999TiB\"\n", "too large"},
		{"time without unit", minimal + "[router]\nhold_timeout = 10\n", "f.toml:9: router.hold_timeout: 10 has no unit"},
		{"split port", minimal + "[router]\nsplit_port = 6447\n",
			`f.toml:9: router.split_port: port 6447 is taken by router.ro_port`},
		{"stream port", minimal + "[router]\nstream_port = 6447\n",
			`f.toml:9: router.stream_port: port 6447 is taken by router.ro_port`},
		{"no stream port", minimal + "[router]\nstream_port = 70000\n",
			`f.toml:9: router.stream_port: port 70000 is not in 1..65535`},
		{"no split port", minimal + "[router]\nsplit_port = 70000\n",
			`f.toml:9: router.split_port: port 70000 is not in 1..65535`},
		{"consistency", minimal + "[router]\nconsistency = \"STRONG\"\n",
			`f.toml:9: router.consistency: "STRONG" is not a level of consistency; there are EVENTUAL, `},
		{"consistency of pass", minimal + "[router]\nsessions = \"pass\"\nconsistency = \"BEFORE\"\n",
			`f.toml:10: router.consistency: BEFORE cannot be kept for sessions that are not followed; set router.sessions = "carry"`},
		{"consistency timeout", minimal + "[router]\nconsistency_timeout = \"0s\"\n",
			`f.toml:9: router.consistency_timeout: 0s is not between`},
		{"max_lag", minimal + "[router]\nmax_lag = \"2h\"\n", `f.toml:9: router.max_lag: 2h is not between`},
		{"compression", strings.Replace(minimal, "[peer]\n", "[peer]\ncompression = \"zip\"\n", 1),
			`f.toml:5: peer.compression: "zip" is not a way to compress; write "off", "auto" or "always"`},
		{"connections of an address", minimal + "[router]\nmax_conns_per_address = -1\n",
			`f.toml:9: router.max_conns_per_address: -1 is not in 0..1000000`},
		{"rate", minimal + "[router]\nmax_conn_rate = 2000000\n",
			`f.toml:9: router.max_conn_rate: 2000000 is not in 0..1000000`},
		{"replay", minimal + "[router]\nreplay = \"writes\"\n",
			`f.toml:9: router.replay: "writes" is not a kind of statement to repeat; write "none" or "reads"`},
		{"socket", minimal + "[router]\nrw_socket = \"run/rw\"\n",
			`f.toml:9: router.rw_socket: "run/rw" is not an absolute path`},
		{"long socket", minimal + "[router]\nro_socket = \"/" + strings.Repeat("x", 108) + "\"\n",
			`f.toml:9: router.ro_socket: is a path of 109 bytes; the system allows 107; choose a shorter one`},
		{"one socket for two", minimal + "[router]\nrw_socket = \"/run/s\"\nro_socket = \"/run/s\"\n",
			`f.toml:9: router.rw_socket: /run/s is taken by router.ro_socket already`},
		{"socket without port", minimal + "[router]\nsplit_port = 0\nsplit_socket = \"/run/s\"\n",
			`f.toml:10: router.split_socket: needs router.split_port`},
		{"balancers", minimal + "[router]\nbalancers = [\"lb1\"]\n",
			`f.toml:9: router.balancers: "lb1" is neither an address nor a network; write ["10.0.0.5", "10.1.0.0/24"]`},
		{"sessions", minimal + "[router]\nsessions = \"keep\"\n",
			`f.toml:9: router.sessions: "keep" is not a way to treat sessions; write "pass" or "carry"`},
		{"two sources of keys", minimal + "[raft]\nlog_key_file = \"a\"\nlog_key_command = [\"kms\", \"get\"]\n",
			`f.toml:10: raft.log_key_command: there is raft.log_key_file too`},
		{"certificate without key", minimal + "[router]\ntls_cert = \"a.pem\"\n",
			`f.toml:9: router.tls_cert: comes with router.tls_key or not at all`},
		{"bad time", minimal + "[router]\nhold_timeout = \"10 sec\"\n", `"10 sec" is not a time`},
		{"text for number", minimal + "[mysql]\nport = \"3306\"\n",
			`f.toml:9: mysql.port: "3306" is text; write a whole number without quotes`},
		{"number for text", minimal + "[mysql]\nbinary = 5\n", "f.toml:9: mysql.binary: 5 is not text; put it in quotes"},
		{"fraction", minimal + "[mysql]\nport = 3306.5\n", "is not a whole number"},
		{"huge number", minimal + "[mysql]\nport = 99999999999\n", "is out of range"},
		{"bad port", minimal + "[mysql]\nport = 70000\n", "f.toml:9: mysql.port: port 70000 is not in 1..65535"},
		{"bad port in address", strings.Replace(minimal, "db1:8008", "db1:0", 1),
			`f.toml:7: api.advertise: port "0" of "db1:0"`},
		{"no port in address", strings.Replace(minimal, "db1:8008", "db1", 1),
			`f.toml:7: api.advertise: "db1" is not host:port`},
		{"wildcard advertised", strings.Replace(minimal, "db1:7306", "0.0.0.0:7306", 1),
			`f.toml:5: peer.advertise: "0.0.0.0:7306" is not an address that another host can connect to`},
		{"duplicate port", minimal + "[router]\nrw_port = 3306\n",
			"f.toml:9: router.rw_port: port 3306 is taken by mysql.port already"},
		{"duplicate with a default", minimal + "[mysql]\nport = 8008\n",
			"f.toml: api.listen: port 8008 is taken by mysql.port already"},
		{"no dir", strings.Replace(minimal, `dir = "/var/lib/trireme"`, "", 1),
			`f.toml: dir: is missing; add a line: dir = "…"`},
		{"no name", strings.Replace(minimal, `name = "n1"`, "", 1), "name: is missing"},
		{"no advertise", strings.Replace(minimal, `advertise = "db1:7306"`, "", 1),
			"peer.advertise: is missing; give the host:port"},
		{"bad name", strings.Replace(minimal, `"n1"`, `"n 1"`, 1), `f.toml:2: name: node name "n 1" is not usable`},
		{"durability", minimal + "[mysql]\ndurability = \"none\"\n",
			`f.toml:9: mysql.durability: "none" is not a durability mode; write "log" or "double"`},
		{"owned option", minimal + "[mysql.options]\ngtid-mode = \"OFF\"\n",
			"f.toml:9: mysql.options.gtid-mode: is set by Trireme itself; remove the line"},
		{"owned option, loose", minimal + "[mysql.options]\nloose_rpl_semi_sync_source_enabled = false\n",
			"is set by Trireme itself"},
		{"option of two lines", minimal + "[mysql.options]\nmax_connections = \"5\\nskip-grant-tables\"\n",
			"a value is one line"},
		{"options not a table", minimal + "[mysql]\noptions = 5\n", "must be a table"},
		{"option twice", minimal + "[mysql.options]\na-b = 1\na_b = 2\n", "a_b is given twice"},
		{"option a list", minimal + "[mysql.options]\na = [1]\n", "a value is text, a number, true or false"},
		{"short election", minimal + "[raft]\nelection_timeout_ms = 200\n",
			"f.toml:9: raft.election_timeout_ms: 200 is not between three heartbeats (300)"},
		{"heartbeat", minimal + "[raft]\nheartbeat_ms = 1\n", "f.toml:9: raft.heartbeat_ms: 1 is not in 5..10000"},
		{"small log", minimal + "[raft]\nlog_max = \"1MiB\"\n", "f.toml:9: raft.log_max: 1MiB is not between"},
		{"virtual address without a subnet", minimal + "[vip]\nrw = \"10.0.0.100\"\n",
			`f.toml:9: vip.rw: "10.0.0.100" is not a virtual address with the length of its subnet`},
		{"virtual address that is a group", minimal + "[vip]\nro = [\"224.0.0.1/24\"]\n",
			`f.toml:9: vip.ro: "224.0.0.1/24" is not a virtual address`},
		{"virtual address twice", minimal + "[vip]\nrw = \"10.0.0.100/24\"\nro = [\"10.0.0.100/24\"]\n",
			"f.toml:10: vip.ro: 10.0.0.100 is given twice"},
		{"virtual address not a text", minimal + "[vip]\nro = [1]\n", "f.toml:9: vip.ro: 1 is not text"},
		{"mysqld not at the virtual address", minimal + "[mysql]\nbind = \"10.0.0.5\"\n[vip]\nrw = \"10.0.0.100/24\"\n",
			"f.toml:9: mysql.bind: a mysqld that listens on 10.0.0.5 does not answer"},
		{"mysqld without IPv6", minimal + "[vip]\nrw = \"fd00::100/64\"\n",
			"mysql.bind: a mysqld that listens on 0.0.0.0 does not answer"},
		{"virtual address is the node's own", strings.Replace(minimal, "db1:7306", "10.0.0.5:7306", 1) +
			"[vip]\nrw = \"10.0.0.5/24\"\n", "f.toml:9: vip.rw: 10.0.0.5 is this node's own address"},
		{"interface for nothing", minimal + "[vip]\ninterface = \"eth0\"\n",
			"f.toml:9: vip.interface: there is no virtual address for it"},
		{"level", minimal + "[log]\nlevel = \"loud\"\n", `f.toml:9: log.level: "loud" is not a level; write debug`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := Parse("f.toml", []byte(tc.text))
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error %v\nwant  %s", err, tc.want)
			}
			if _, ok := err.(*Error); !ok {
				t.Errorf("error is %T", err)
			}
			if err != nil && strings.Contains(err.Error(), "\n") {
				t.Errorf("more than one line: %q", err)
			}
		})
	}
}

func TestPortsOfDifferentAddressesMayBeEqual(t *testing.T) {
	n := Default()
	n.Cluster, n.Name, n.Dir = "c1", "n1", "/d"
	n.Peer.Listen, n.Peer.Advertise = "127.0.0.2:3306", "127.0.0.2:3306"
	n.API.Advertise = "127.0.0.1:8008"
	n.MySQL.Bind = "127.0.0.1"
	if err := n.Validate(); err != nil {
		t.Error(err)
	}
	n.MySQL.Bind = "0.0.0.0"
	if err := n.Validate(); err == nil {
		t.Error("a wildcard overlaps everything")
	}
}

func TestLoadMissingFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "none.toml")
	if _, err := Load(path); err == nil || !strings.Contains(err.Error(), path+": no such file") {
		t.Error(err)
	}
}

// TestRenderedFileReadsBack: whatever the settings are, what init writes is what the daemon reads.
func TestRenderedFileReadsBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := Default()
		n.Cluster, n.Name, n.Dir = "c1", "n1", "/data/"+rapid.StringMatching(`[a-z "\\\x01é]{0,6}`).Draw(t, "dir")+"x"
		n.Peer.Advertise, n.API.Advertise = "db1:7306", "db1:8008"
		n.MySQL.Port = rapid.IntRange(10000, 20000).Draw(t, "port")
		n.MySQL.Durability = rapid.SampledFrom([]string{DurabilityLog, DurabilityDouble}).Draw(t, "durability")
		n.Raft.LogCache = Bytes(rapid.Int64Range(int64(MiB), int64(GiB)).Draw(t, "cache"))
		n.Router.HoldTimeout = Duration(rapid.Int64Range(1, int64(time.Hour)).Draw(t, "hold"))
		if rapid.Bool().Draw(t, "options") {
			n.MySQL.Options = map[string]string{
				"sql_mode":                              rapid.StringMatching(`[A-Za-z0-9,_" ]{0,10}`).Draw(t, "mode"),
				"hot.key_buffer_size":                   "1M",
				"innodb_io_capacity":                    "2000",
				"performance_schema":                    "OFF",
				"replica_parallel_workers":              "8",
				"loose_log_bin_trust_function_creators": "ON", // as `trireme leave` writes it, for a later adopt
			}
		}
		n.File = "/data/trireme.toml"
		got, err := Parse(n.File, Render(n))
		if err != nil {
			t.Fatalf("%v in\n%s", err, Render(n))
		}
		if !reflect.DeepEqual(got, n) {
			t.Fatalf("got  %+v\nwant %+v\nfrom\n%s", got, n, Render(n))
		}
	})
}

func TestUnits(t *testing.T) {
	for text, want := range map[string]Bytes{"0B": 0, "100B": 100, "1KiB": 1024, "64MiB": 64 << 20, " 2 GiB ": 2 << 30,
		"3TiB": 3 << 40} {
		if got, err := ParseBytes(text); err != nil || got != want {
			t.Errorf("%q: %v %v", text, got, err)
		}
	}
	for _, text := range []string{"", "5", "MiB", "-1MiB", "1.5GiB", "1mb", "1 M"} {
		if got, err := ParseBytes(text); err == nil {
			t.Errorf("%q: %v", text, got)
		}
	}
	for b, want := range map[Bytes]string{0: "0B", 1023: "1023B", 1024: "1KiB", 1 << 30: "1GiB", 1<<20 +
		1<<10: "1025KiB"} {
		if b.String() != want {
			t.Errorf("%d is %s", b, b)
		}
	}
	for text, want := range map[string]string{"500ms": "500ms", "60s": "1m", "3600s": "1h", "90s": "1m30s", "10m": "10m",
		"0s": "0s"} {
		if d, err := ParseDuration(text); err != nil || d.String() != want {
			t.Errorf("%q: %v %v", text, d, err)
		}
	}
	for _, text := range []string{"", "5", "-1s", "1 day"} {
		if d, err := ParseDuration(text); err == nil {
			t.Errorf("%q: %v", text, d)
		}
	}
}

func testCluster() *Cluster {
	n1, n2 := Default(), Default()
	n1.Name, n1.Peer.Advertise, n1.API.Advertise = "n1", "db1:7306", "db1:8008"
	n2.Name, n2.Peer.Advertise, n2.API.Advertise = "l1", "db2:7306", "db2:8008"
	return &Cluster{
		Version: 3, Name: "c1", ClusterID: 42, NextID: 3, Members: []Member{n1.Member(1, RoleVoter),
			n2.Member(2, RoleLogger)},
		JoinTokens:   []JoinToken{{ID: "a", Hash: "h", Role: RoleVoter, Expires: time.Unix(1e9, 0).UTC()}},
		APITokenHash: "x",
	}
}

func TestCluster(t *testing.T) {
	c := testCluster()
	data, err := c.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	got, err := ParseCluster(data)
	if err != nil || !reflect.DeepEqual(got, c) {
		t.Errorf("%+v, %v", got, err)
	}
	d := c.Clone()
	d.Members[0].Name, d.JoinTokens[0].ID = "x", "y"
	if c.Members[0].Name != "n1" || c.JoinTokens[0].ID != "a" {
		t.Error("Clone shares memory")
	}
	if m, ok := c.Member("l1"); !ok || m.MySQLPort != 0 || m.Weight != 0 {
		t.Errorf("%+v %v", m, ok)
	}
	if m, ok := c.MemberByID(1); !ok || m.MySQLHost != "db1" || m.MySQLPort != 3306 || m.Weight != DefaultWeight {
		t.Errorf("%+v %v", m, ok)
	}
	if _, ok := c.Member("n9"); ok {
		t.Error("found n9")
	}
	if got := strings.Join(c.Names(), " "); got != "n1 l1" {
		t.Error(got)
	}
	var later map[string]any
	if err := json.Unmarshal(data, &later); err != nil {
		t.Fatal(err)
	}
	later["from_a_newer_version"] = 1
	text, _ := json.Marshal(later)
	if _, err := ParseCluster(text); err != nil {
		t.Errorf("settings of a newer version: %v", err)
	}
}

func TestClusterMistakes(t *testing.T) {
	for want, spoil := range map[string]func(*Cluster){
		"cluster name":              func(c *Cluster) { c.Name = "" },
		"cluster_id is 0":           func(c *Cluster) { c.ClusterID = 0 },
		"0 members":                 func(c *Cluster) { c.Members = nil },
		"the same id 1":             func(c *Cluster) { c.Members[1].ID = 1 },
		"the same name n1":          func(c *Cluster) { c.Members[1].Name = "n1" },
		"the same peer address":     func(c *Cluster) { c.Members[1].Peer = c.Members[0].Peer },
		"the same api address":      func(c *Cluster) { c.Members[1].API = c.Members[0].API },
		"next_id is 2":              func(c *Cluster) { c.NextID = 2 },
		"not in 1..4095":            func(c *Cluster) { c.Members[0].ID = 4096 },
		"is not one of":             func(c *Cluster) { c.Members[0].Role = "boss" },
		"a logger but has a mysqld": func(c *Cluster) { c.Members[1].MySQLPort = 3306 },
		"mysqld address":            func(c *Cluster) { c.Members[0].MySQLPort = 0 },
		"is not in 0..1000":         func(c *Cluster) { c.Members[0].Weight = -1 },
		"join token":                func(c *Cluster) { c.JoinTokens[0].Hash = "" },
		"host:port":                 func(c *Cluster) { c.Members[0].Peer = "db1" },
	} {
		c := testCluster()
		spoil(c)
		if _, err := c.Marshal(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
	if _, err := ParseCluster([]byte("{")); err == nil {
		t.Error("no error")
	}
}

func TestFiles(t *testing.T) {
	dir := t.TempDir()
	s := NewSecrets()
	if err := s.Save(dir); err != nil {
		t.Fatal(err)
	}
	if got, err := LoadSecrets(dir); err != nil || got != s {
		t.Errorf("%v", err)
	}
	if st, err := os.Stat(filepath.Join(dir, SecretsName)); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", st.Mode(), err)
	}
	if err := os.Chmod(filepath.Join(dir, SecretsName), 0o640); err != nil {
		t.Fatal(err)
	}
	if _, err := LoadSecrets(dir); err == nil || !strings.Contains(err.Error(), "chmod 600") {
		t.Error(err)
	}
	id := Identity{Cluster: "c1", ClusterID: 42, Name: "n1", ID: 1, Role: RoleVoter, Bootstrap: true}
	if err := id.Save(dir); err != nil {
		t.Fatal(err)
	}
	if got, err := LoadIdentity(dir); err != nil || got != id {
		t.Errorf("%+v %v", got, err)
	}
	if err := testCluster().Save(dir); err != nil {
		t.Fatal(err)
	}
	if got, err := LoadCluster(dir); err != nil || !reflect.DeepEqual(got, testCluster()) {
		t.Errorf("%+v %v", got, err)
	}
	none := t.TempDir()
	for what, err := range map[string]error{"identity": second(LoadIdentity(none)), "secrets": second(LoadSecrets(none)),
		"cluster": second(LoadCluster(none))} {
		if err == nil || !strings.Contains(err.Error(), "trireme init") {
			t.Errorf("%s: %v", what, err)
		}
	}
	entries, _ := os.ReadDir(dir)
	if len(entries) != 3 {
		t.Errorf("not removed: %v", entries)
	}
	if a, b := NewToken(), NewToken(); a == b || len(a) != 32 {
		t.Error("tokens")
	}
	for range 100 { // validate_password's MEDIUM policy wants one of each
		s := NewToken()
		for _, class := range []string{"-_", "0123456789", "abcdefghijklmnopqrstuvwxyz", "ABCDEFGHIJKLMNOPQRSTUVWXYZ"} {
			if !strings.ContainsAny(s, class) {
				t.Fatalf("%s has none of %s", s, class)
			}
		}
	}
}

func second[T any](_ T, err error) error { return err }

// TestDocumented: docs/configuration.md has one row per setting with its default, and no other.
func TestDocumented(t *testing.T) {
	text, err := os.ReadFile("../../../docs/configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	row := regexp.MustCompile("(?m)^\\| `([a-z_.]+)` \\| ([^|]*) \\|")
	documented := map[string]string{}
	for _, m := range row.FindAllStringSubmatch(string(text), -1) {
		documented[m[1]] = strings.Trim(m[2], "` ")
	}
	for _, s := range settings {
		got, there := documented[s.key]
		want := s.def
		if want == "" {
			want = "–"
		}
		if !there || got != want {
			t.Errorf("docs/configuration.md: %s has default %q, documented %v %q", s.key, want, there, got)
		}
		delete(documented, s.key)
	}
	for key, want := range new(Cluster).values() {
		if got := documented[key]; got != want {
			t.Errorf("docs/configuration.md: %s has the default %q", key, got)
		}
		delete(documented, key)
	}
	for k := range documented {
		t.Errorf("docs/configuration.md: %s is no setting", k)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(minimal))
	f.Add([]byte(minimal + "[mysql.options]\na = 1\n"))
	f.Add([]byte("[[mysql]]\nport=1\n[mysql.options.x]\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		n, err := Parse("/f.toml", data)
		if err == nil {
			err = n.Validate()
		}
		if err != nil && err.Error() == "" {
			t.Error("an error without words")
		}
		_ = fmt.Sprint(n)
	})
}

func TestKnownPeers(t *testing.T) {
	for text, want := range map[string]string{
		"":                           "map[]",
		"db2=h:1":                    "map[db2:h:1]",
		" db2=h:1, db-3=10.0.0.1:2 ": "map[db-3:10.0.0.1:2 db2:h:1]",
		"db2":                        "",
		"db2=h":                      "",
		"db2=0.0.0.0:1":              "",
		"=h:1":                       "",
	} {
		got, err := Peer{Known: text}.KnownPeers()
		if (err != nil) != (want == "") || err == nil && fmt.Sprint(got) != want {
			t.Errorf("%q: %v, %v", text, got, err)
		}
	}
}
