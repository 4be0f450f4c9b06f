package mysqld

import (
	"errors"
	"slices"
	"strings"
	"testing"
)

func unitConfig() Config {
	return Config{
		Binary: Binary{Path: "/usr/sbin/mysqld", Version: Version{9, 7, 4, "9.7.4"}}, Dir: "/srv/n1", Port: 3306, ServerID: 1,
		Admin: Account{"a", "x"}, Repl: Account{"r", "y"},
	}
}

func TestExtraSettings(t *testing.T) {
	for _, c := range []struct {
		name, value string
		want        error
	}{
		{"innodb_buffer_pool_size", "8G", nil},
		{"max-connections", "500", nil},
		{"sync_binlog", "0", nil}, // ours anyway
		{"sync_binlog", "1", ErrSetting},
		{"innodb-flush-log-at-trx-commit", "1", ErrSetting},
		{"GTID_MODE", "1", nil},
		{"gtid_mode", "OFF_PERMISSIVE", ErrSetting},
		{"loose-rpl_semi_sync_source_enabled", "OFF", ErrSetting},
		{"skip-rpl-semi-sync-source-enabled", "", ErrSetting},
		{"rpl_semi_sync_source_timeout", "1000", ErrSetting},
		{"rpl_semi_sync_replica_enabled", "ON", ErrSetting},
		{"replicate-do-db", "a", ErrSetting},
		{"binlog_do_db", "a", ErrSetting},
		{"skip-log-bin", "", ErrSetting},
		{"skip_log_replica_updates", "", ErrSetting},
		{"skip_gtid_mode", "", ErrSetting},
		{"super_read_only", "OFF", ErrSetting},
		{"datadir", "/tmp", ErrSetting},
		{"init_file", "/x.sql", ErrSetting},
		{"innodb_force_recovery", "1", ErrSetting},
		{"persisted_globals_load", "ON", ErrSetting},
		{"plugin_load_add", "auth_socket.so", nil},
		{"skip_name_resolve", "OFF", nil},
		{"replica_parallel_workers", "16", nil},
		{"performance_schema", "OFF", nil},
		{"a b", "1", ErrConfig},
		{"max_connections", "1\n[mysqld]", ErrConfig},
		{"", "1", ErrConfig},
	} {
		cfg := unitConfig()
		cfg.Extra = map[string]string{c.name: c.value}
		if err := cfg.Validate(); !errors.Is(err, c.want) {
			t.Errorf("%s=%q: %v, want %v", c.name, c.value, err, c.want)
		}
	}
}

func TestValidate(t *testing.T) {
	for name, spoil := range map[string]func(*Config){
		"program":    func(c *Config) { c.Binary.Path = "" },
		"directory":  func(c *Config) { c.Dir = "n1" },
		"port":       func(c *Config) { c.Port = 70000 },
		"server id":  func(c *Config) { c.ServerID = 0 },
		"password":   func(c *Config) { c.Repl.Password = "" },
		"same name":  func(c *Config) { c.Repl.User = c.Admin.User },
		"durability": func(c *Config) { c.Durability = "none" },
	} {
		cfg := unitConfig()
		spoil(&cfg)
		if err := cfg.Validate(); !errors.Is(err, ErrConfig) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := unitConfig().Validate(); err != nil {
		t.Fatal(err)
	}
}

// mysqld takes the last line of a name: the operator's come after our defaults and before what is enforced.
func TestOptionFileOrder(t *testing.T) {
	cfg := unitConfig()
	cfg.Dir = `/srv/a "b" \c`
	cfg.Extra = map[string]string{"max-binlog-size": "512M", "skip_external_locking": ""}
	lines := strings.Split(cfg.options(), "\n")
	at := func(l string) int {
		i := slices.Index(lines, l)
		if i < 0 {
			t.Fatalf("no line %s in\n%s", l, cfg.options())
		}
		return i
	}
	if at(`max_binlog_size="1G"`) > at(`max_binlog_size="512M"`) || at(`max_binlog_size="512M"`) > at(`gtid_mode="ON"`) {
		t.Fatal(cfg.options())
	}
	at("skip_external_locking")
	at(`datadir="/srv/a "b" \\c/data"`)
	at(`sync_binlog="0"`)
	cfg.Durability = DurabilityDouble
	lines = strings.Split(cfg.options(), "\n")
	at(`sync_binlog="1"`)
	at(`innodb_flush_log_at_trx_commit="1"`)
	if strings.Contains(cfg.options(), "replica_parallel_type") {
		t.Fatal("a setting that 9.7 does not know")
	}
	cfg.Binary.Version = Version{8, 0, 36, "8.0.36"}
	lines = strings.Split(cfg.options(), "\n")
	at(`binlog_transaction_dependency_tracking="WRITESET"`)
}

// The daemon's own sessions count towards max_connections, so they are added to what applications can have; what is no
// number is mysqld's to refuse.
func TestMaxConnections(t *testing.T) {
	for _, c := range []struct{ name, value, want string }{
		{"", "", `max_connections="163"`},
		{"max-connections", "500", `max_connections="512"`},
		{"loose_max_connections", "2K", `max_connections="2060"`},
		{"max_connections", "many", `max_connections="many"`},
	} {
		cfg := unitConfig()
		if c.name != "" {
			cfg.Extra = map[string]string{c.name: c.value}
		}
		lines := strings.Split(strings.TrimSpace(cfg.options()), "\n")
		last := ""
		for _, l := range lines {
			if strings.HasPrefix(canonical(l), "max_connections") {
				last = l
			}
		}
		if last != c.want {
			t.Errorf("%s=%s: %s, want %s", c.name, c.value, last, c.want)
		}
	}
}

// An empty value is a value, but for switches: mysqld does not start with "secure_file_priv" alone on a line.
func TestEmptyOption(t *testing.T) {
	cfg := unitConfig()
	cfg.Extra = map[string]string{"secure-file-priv": "", "sql_mode": "", "skip-show-database": "", "loose_skip_x": ""}
	for _, text := range []string{cfg.options(), cfg.plainOptions(true)} {
		for _, l := range []string{`secure_file_priv=""`, `sql_mode=""`, "skip_show_database", "loose_skip_x"} {
			if !slices.Contains(strings.Split(text, "\n"), l) {
				t.Errorf("no line %s in\n%s", l, text)
			}
		}
	}
}

func TestQuote(t *testing.T) {
	for in, want := range map[string]string{"a": "'a'", `it's\n`: `'it\'s\\n'`, "a\x00\n": `'a\0\n'`} {
		if got := quote(in); got != want {
			t.Errorf("%q: %s, want %s", in, got, want)
		}
	}
	if got := ident("a`b"); got != "`a``b`" {
		t.Error(got)
	}
	if got := definer("a@b@10.0.0.1"); got != "`a@b`@`10.0.0.1`" {
		t.Error(got)
	}
}

func TestParseXID(t *testing.T) {
	x, err := parseXID("7", "2", "1", "0x616200")
	if err != nil || x != (XID{7, "ab", "\x00"}) || x.String() != "7,6162,00" {
		t.Fatal(x, err)
	}
	for _, bad := range [][4]string{{"7", "2", "2", "0x616200"}, {"7", "-1", "4", "0x616200"}, {"x", "2", "1", "0x616200"},
		{"1", "2", "1", "0xzz"}} {
		if x, err := parseXID(bad[0], bad[1], bad[2], bad[3]); err == nil {
			t.Errorf("%v: %v", bad, x)
		}
	}
}

func TestAdviceFor(t *testing.T) {
	got :=
		adviceFor(
			[]string{"... [ERROR] [MY-010262] [Server] Can't start server: Bind on TCP/IP port: Address already in use"})
	if !strings.Contains(got, "mysql.port") {
		t.Error(got)
	}
	if adviceFor([]string{"nothing special"}) != "" {
		t.Error("advice out of thin air")
	}
}

func TestDeniedPrivileges(t *testing.T) {
	for p, want := range map[string]bool{
		"Super": true, "SYSTEM_USER": true, "PERSIST_RO_VARIABLES_ADMIN": true, "BINLOG_ADMIN": true,
		"Replication slave": true, "REPLICATION_APPLIER": true, "INNODB_REDO_LOG_ENABLE": true, "Grant option": true,
		"Select": false, "Create user": false, "XA_RECOVER_ADMIN": false, "SET_ANY_DEFINER": false, "Process": false,
	} {
		if denied(p) != want {
			t.Errorf("%s: not %v", p, want)
		}
	}
}

// Cascades are InnoDB's own where the server would write them to the binary log (since 9.6), unless the operator wants
// it otherwise; older servers are not told of a setting that they do not know.
func TestNativeForeignKeys(t *testing.T) {
	const line = `loose_innodb_native_foreign_keys="ON"`
	for _, c := range []struct {
		version Version
		want    bool
	}{{Version{9, 7, 4, ""}, true}, {Version{9, 6, 0, ""}, true}, {Version{9, 5, 0, ""}, false},
		{Version{8, 4, 0, ""}, false}, {Version{8, 0, 36, ""}, false}} {
		cfg := unitConfig()
		cfg.Binary.Version = c.version
		if got := strings.Contains(cfg.options(), line); got != c.want {
			t.Errorf("%v: %t, want %t", c.version, got, c.want)
		}
		cfg.Extra = map[string]string{"innodb-native-foreign-keys": "0"}
		if err := cfg.Validate(); err != nil {
			t.Errorf("%v: %v", c.version, err)
		}
		if got := len(cfg.Risks()) > 0; got != c.want {
			t.Errorf("%v: OFF is a risk: %t, want %t", c.version, got, c.want)
		}
		cfg.Extra = map[string]string{"innodb_native_foreign_keys": "ON"}
		if r := cfg.Risks(); len(r) > 0 {
			t.Errorf("%v: ON: %v", c.version, r)
		}
	}
}
