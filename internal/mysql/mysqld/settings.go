package mysqld

import (
	"fmt"
	"maps"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
)

// setting is one line of my.cnf that only Trireme sets.
type setting struct {
	name, value string
	why         string // for the operator who tries to change it
}

const (
	whyPipe      = "the binary log is the pipe to the daemon (S5)"
	whyGTID      = "recovery and the feed go by GTID"
	whySemisync  = "a commit must wait for the daemon's acknowledgement (S4)"
	whyStart     = "a server starts read-only and is opened by the daemon (S6)"
	whyPlace     = "its place is given by the node's directory and mysql.port, mysql.bind"
	whyNoEngine  = "tables without transactions cannot be rolled back after a crash (S5)"
	whyFeed      = "the follower's applier is run by the daemon"
	whyDurable   = "flushing follows mysql.durability"
	whyFilter    = "every node must hold everything: a filter loses data at the next failover"
	whyDangerous = "it makes the server unusable as a member of the cluster"
)

// disabledEngines are the engines whose changes a rollback does not undo.
const disabledEngines = "MyISAM,MRG_MYISAM,MEMORY,CSV,ARCHIVE,BLACKHOLE,FEDERATED,EXAMPLE"

// semisyncTimeoutMS is a hundred years. The plugin waits until a time of day: when somebody sets the clock beyond it,
// mysqld answers what waits with OK and switches semi-sync off. A clock that starts in 1970 and is set right later
// jumps by decades. The manual's limit, 49 days, is not the server's.
const semisyncTimeoutMS = 100 * 365 * 24 * 3600 * 1000

// leaderSettings are the values without which a commit could be answered before Raft has it (S4). my.cnf sets them and
// VerifyLeaderSettings looks at them before writes open, since somebody with SUPER could have changed them.
var leaderSettings = []setting{
	{"rpl_semi_sync_source_enabled", "ON", whySemisync},
	{"rpl_semi_sync_source_timeout", strconv.Itoa(semisyncTimeoutMS), whySemisync},
	{"rpl_semi_sync_source_wait_for_replica_count", "1", whySemisync},
	{"rpl_semi_sync_source_wait_no_replica", "ON", whySemisync},
	{"rpl_semi_sync_source_wait_point", "AFTER_SYNC", whySemisync},
}

// alwaysSettings hold for every role and are verified after each start as well.
var alwaysSettings = []setting{
	{"gtid_mode", "ON", whyGTID},
	{"enforce_gtid_consistency", "ON", whyGTID},
	{"binlog_format", "ROW", whyPipe},
	{"binlog_checksum", "CRC32", whyPipe},
	{"binlog_order_commits", "ON", "acknowledgements go in log order"},
	{"binlog_error_action", "ABORT_SERVER", whyPipe},
	{"binlog_expire_logs_seconds", "0", whyPipe},
	{"log_replica_updates", "OFF", "a follower's own log would claim transactions that its tables lost in a crash"},
	{"relay_log_recovery", "ON", whyFeed},
	{"skip_replica_start", "ON", whyFeed},
	{"replica_preserve_commit_order", "ON", "a follower must always be a prefix of the log (S5)"},
	{"innodb_doublewrite", "ON", "torn pages could not be repaired after a power loss"},
	{"persisted_globals_load", "OFF", "SET PERSIST could switch semi-sync off at the next start (S4)"},
	{"partial_revokes", "ON", "application accounts must not write to schema mysql"},
	{"disabled_storage_engines", disabledEngines, whyNoEngine},
}

// optionSettings can be given in my.cnf only; no variable shows them.
var optionSettings = []setting{
	{"replicate_same_server_id", "ON", "an ex-leader gets its own transactions back through the feed"},
	{"plugin_load_add", "semisync_source.so", whySemisync},
	{"plugin_load_add", "mysql_clone.so", "other nodes are seeded from this server"},
}

// startSettings are what a server starts with; the daemon changes them later.
var startSettings = []setting{
	{"read_only", "ON", whyStart},
	{"super_read_only", "ON", whyStart},
	{"event_scheduler", "OFF", "scheduled events run on the leader only"},
	{"offline_mode", "ON", "clients must not read from a server that is not judged yet (S5)"},
}

// refused are names that Trireme does not set itself but that would break a promise. A trailing * stands for any rest.
var refused = []setting{
	{name: "replicate_*", why: whyFilter},
	{name: "binlog_do_db", why: whyFilter},
	{name: "binlog_ignore_db", why: whyFilter},
	{name: "rpl_semi_sync_*", why: whySemisync},
	{name: "group_replication_*", why: "Trireme replicates in its place"},
	{name: "init_file", why: "statements at start-up wait for an acknowledgement that cannot come yet"},
	{name: "skip_log_bin", why: whyPipe},
	{name: "disable_log_bin", why: whyPipe},
	{name: "log_slave_updates", why: "a follower's own log would claim transactions that its tables lost in a crash"},
	{name: "skip_log_replica_updates", why: whyPipe},
	{name: "skip_slave_start", why: whyFeed},
	{name: "slave_preserve_commit_order", why: "a follower must always be a prefix of the log (S5)"},
	{name: "slave_parallel_workers", why: "its name is replica_parallel_workers"},
	{name: "replica_skip_errors", why: whyFilter},
	{name: "slave_skip_errors", why: whyFilter},
	{name: "replica_exec_mode", why: whyFilter},
	{name: "slave_exec_mode", why: whyFilter},
	{name: "server_uuid", why: "each start has a server_uuid of its own (S5)"},
	{name: "skip_networking", why: "replication and the router need TCP"},
	{name: "skip_grant_tables", why: whyDangerous},
	{name: "skip_innodb", why: whyDangerous},
	{name: "innodb_force_recovery", why: whyDangerous},
	{name: "innodb_read_only", why: whyDangerous},
	{name: "tc_heuristic_recover", why: "it would commit or roll back what Raft decides about (S5)"},
	{name: "initialize", why: whyDangerous},
	{name: "initialize_insecure", why: whyDangerous},
	{name: "daemonize", why: "the daemon watches its mysqld as a child process"},
	{name: "user", why: "its place is mysql.os_user"},
	{name: "log_bin_basename", why: whyPlace},
	{name: "defaults_*", why: whyPlace},
	{name: "no_defaults", why: whyPlace},
}

// placeSettings are where things are and who this server is.
func (c Config) placeSettings() []setting {
	report := c.ReportHost
	if report == "" {
		report = c.bind()
	}
	return []setting{
		{"datadir", c.DataDir(), whyPlace},
		{"socket", c.Socket(), whyPlace},
		{"pid_file", c.PidFile(), whyPlace},
		{"port", strconv.Itoa(c.Port), whyPlace},
		{"bind_address", c.bind(), whyPlace},
		{"log_error", c.ErrorLog(), whyPlace},
		{"log_bin", filepath.Join(c.BinlogDir(), "binlog"), whyPlace},
		{"log_bin_index", filepath.Join(c.BinlogDir(), "binlog.index"), whyPlace},
		{"relay_log", filepath.Join(c.RelayDir(), "relay"), whyPlace},
		{"relay_log_index", filepath.Join(c.RelayDir(), "relay.index"), whyPlace},
		{"server_id", strconv.FormatUint(uint64(c.ServerID), 10), "it must be unique in the cluster"},
		{"report_host", report, whyPlace},
		{"report_port", strconv.Itoa(c.Port), whyPlace},
	}
}

// enforced are all settings that the operator cannot change, in the order of my.cnf.
func (c Config) enforced() []setting {
	commit, sync := c.flushing(false)
	s := slices.Concat(c.placeSettings(), alwaysSettings, startSettings, optionSettings, leaderSettings,
		[]setting{
			{"innodb_flush_log_at_trx_commit", commit, whyDurable},
			{"sync_binlog", sync, whyDurable},
		})
	if !c.Binary.Version.AtLeast(8, 4, 0) {
		s = append(s,
			setting{"binlog_transaction_dependency_tracking", "WRITESET", whyFeed},
			setting{"replica_parallel_type", "LOGICAL_CLOCK", whyFeed})
	}
	return s
}

// defaults are Trireme's choices where the server's own do not suit; the operator may change them.
func (c Config) defaults() []setting {
	s := []setting{
		{name: "max_binlog_size", value: "1G"}, // rotation stalls all commits for a round trip
		{name: "replica_parallel_workers", value: strconv.Itoa(defaultAppliers())},
		{name: "max_relay_log_size", value: "64M"}, // what was applied is freed by whole files
		{name: "relay_log_space_limit", value: "512M"},
		{name: "secure_file_priv", value: "NULL"},
		{name: "loose_mysqlx", value: "OFF"},
		// a slow name server must not hold up logins
		{name: "skip_name_resolve", value: "ON"},
		// safe with row format; application accounts have no SUPER
		{name: "loose_log_bin_trust_function_creators", value: "ON"},
		// how far an ALTER TABLE has come; it costs next to nothing
		{name: "loose_performance_schema_consumer_events_stages_current", value: "ON"},
		{name: "log_error_verbosity", value: "2"},
		{name: "log_timestamps", value: "UTC"},
	}
	s = append(s, c.tlsSettings()...)
	if c.Binary.Version.AtLeast(9, 6, 0) {
		// OFF, the server's own choice, writes cascades to the binary log, some of them so that no replica can apply
		// them (docs/mysql.md).
		s = append(s, setting{name: "loose_" + nativeForeignKeys, value: "ON"})
	}
	return s
}

// nativeForeignKeys reports whether InnoDB carries out the cascades of foreign keys by itself, on every node.
const nativeForeignKeys = "innodb_native_foreign_keys"

// Risks are the operator's choices that may harm, a sentence each.
func (c Config) Risks() []string {
	if !c.Binary.Version.AtLeast(9, 6, 0) {
		return nil
	}
	value, set := c.extra(nativeForeignKeys)
	if _, skipped := c.extra("skip_" + nativeForeignKeys); skipped || set && sameValue(value, "OFF") {
		return []string{"mysql.options sets " + nativeForeignKeys +
			" to OFF: any account that may create tables can write what no " +
			"follower can apply (docs/mysql.md); `trireme advise` names the tables concerned"}
	}
	return nil
}

// extra is the operator's value of an option; of several spellings the last in my.cnf, as mysqld has it.
func (c Config) extra(option string) (value string, set bool) {
	for _, name := range slices.Sorted(maps.Keys(c.Extra)) {
		if canonical(name) == option {
			value, set = c.Extra[name], true
		}
	}
	return value, set
}

// Appliers is the number of workers that apply transactions on a follower, replica_parallel_workers as the server
// starts; 0 if the operator's value is not a plain number.
func (c Config) Appliers() int {
	value, set := c.extra("replica_parallel_workers")
	if !set {
		return defaultAppliers()
	}
	n, _ := strconv.Atoi(value)
	return n
}

func defaultAppliers() int { return 2 * runtime.NumCPU() }

// Chosen are the settings that a data node's mysqld gets from Trireme, enforced ones and defaults, but for places and
// ports. The flushing is the leader's; a follower in DurabilityLog does with less.
func Chosen(d Durability) map[string]string {
	c := Config{Durability: d, Binary: Binary{Version: Version{Major: 9, Minor: 7}}}
	out := map[string]string{}
	places := len(c.placeSettings())
	for _, s := range append(c.enforced()[places:], c.defaults()...) {
		out[s.name] = s.value
	}
	out["innodb_flush_log_at_trx_commit"], out["sync_binlog"] = c.flushing(true)
	return out
}

// flushing gives innodb_flush_log_at_trx_commit and sync_binlog for a role. In DurabilityLog the raft log's fsync is
// the durable one, and what InnoDB lost is fed again, so neither role flushes for each commit; the leader still writes
// each commit's redo to the kernel, so that a killed process has next to nothing to catch up.
func (c Config) flushing(leader bool) (commit, sync string) {
	switch {
	case c.Durability == DurabilityDouble:
		return "1", "1"
	case leader:
		return "2", "0"
	default:
		return "0", "0"
	}
}

// canonical is the one spelling of an option's name that is compared: without "loose", with '_', in lower case.
func canonical(name string) string {
	n := strings.ReplaceAll(strings.ToLower(strings.TrimSpace(name)), "-", "_")
	return strings.TrimPrefix(n, "loose_")
}

// checkExtra refuses operator's lines that would take a promise away. A line that says what we set anyway is fine.
func (c Config) checkExtra() error {
	ours := map[string]setting{}
	for _, s := range c.enforced() {
		ours[canonical(s.name)] = s
	}
	for _, name := range slices.Sorted(maps.Keys(c.Extra)) {
		value := c.Extra[name]
		key := canonical(name)
		if key == "" || strings.ContainsAny(name+value, "\n\r\x00") || strings.ContainsAny(key, "=#[]\" \t") {
			return fmt.Errorf("%w: mysql.options: %q = %q is not an option", ErrConfig, name, value)
		}
		if key == "plugin_load_add" {
			continue // adds to ours
		}
		if s, ok := ours[key]; ok {
			if !sameValue(s.value, value) {
				return fmt.Errorf("%w: mysql.options: %s is always %q, because %s; remove the line", ErrSetting, name, s.value,
					s.why)
			}
			continue
		}
		if s, ok := refusedOption(key); ok {
			return fmt.Errorf("%w: mysql.options: %s cannot be set, because %s; remove the line", ErrSetting, name, s.why)
		}
	}
	return nil
}

// refusedOption looks key up in refused, also with the prefixes by which mysqld switches an option.
func refusedOption(key string) (setting, bool) {
	bare := strings.TrimPrefix(key, switchPrefix(key))
	for _, s := range refused {
		stem, any := strings.CutSuffix(s.name, "*")
		for _, k := range []string{key, bare} {
			if k == s.name || any && strings.HasPrefix(k, stem) {
				return s, true
			}
		}
	}
	for _, s := range slices.Concat(alwaysSettings, startSettings, leaderSettings) {
		if bare != key && bare == s.name {
			return s, true
		}
	}
	return setting{}, false
}

// switchPrefix is the prefix by which mysqld switches an option, "" for none.
func switchPrefix(key string) string {
	for _, p := range []string{"skip_", "disable_", "enable_"} {
		if strings.HasPrefix(key, p) {
			return p
		}
	}
	return ""
}

// sameValue compares as mysqld does: ON is 1, case does not matter.
func sameValue(a, b string) bool {
	norm := func(s string) string {
		s = strings.ToUpper(strings.TrimSpace(s))
		switch s {
		case "1", "TRUE", "YES":
			return "ON"
		case "0", "FALSE", "NO":
			return "OFF"
		}
		return bytesOf(s)
	}
	return norm(a) == norm(b)
}

// bytesOf writes a size with a unit ("1G") as a number; anything else stays.
func bytesOf(s string) string {
	number, unit := strings.TrimRight(s, "KMG"), 0
	if len(s) == len(number)+1 {
		unit = 10 * (1 + strings.Index("KMG", s[len(number):]))
	}
	n, err := strconv.ParseUint(number, 10, 64)
	if unit == 0 || err != nil || n > 1<<63>>unit {
		return s
	}
	return strconv.FormatUint(n<<unit, 10)
}

// options is the text of my.cnf. The operator's lines stand between our defaults and our enforced ones: mysqld takes
// the last.
func (c Config) options() string {
	var b strings.Builder
	b.WriteString("# Written by trireme before every start of mysqld; changes here are lost. Use mysql.options in trireme.toml.\n[mysqld]\n")
	for _, s := range c.defaults() {
		b.WriteString(optionLine(s.name, s.value))
	}
	b.WriteString("\n# mysql.options\n")
	for _, name := range slices.Sorted(maps.Keys(c.Extra)) {
		b.WriteString(optionLine(name, c.Extra[name]))
	}
	b.WriteString("\n# Trireme's own\n")
	for _, s := range c.enforced() {
		b.WriteString(optionLine(s.name, s.value))
	}
	if n, ok := c.maxConnections(); ok {
		b.WriteString(optionLine("max_connections", strconv.Itoa(n+ownSessions)))
	}
	return b.String()
}

// optionLine is one line of an option file. A switch like skip_name_resolve stands alone without a value; any other
// option gets its empty value: sql_mode, secure_file_priv and the like have one, and mysqld does not start without it.
func optionLine(name, value string) string {
	name = strings.ReplaceAll(name, "-", "_")
	if value == "" && switchPrefix(canonical(name)) != "" {
		return name + "\n"
	}
	return name + `="` + strings.ReplaceAll(value, `\`, `\\`) + "\"\n"
}

const (
	// ownSessions is the most that a daemon has of its own at its mysqld: ten by the socket, two that read the binary
	// log. mysqld counts them towards max_connections, so that number is added to the operator's. Its administrative
	// interface does not count them, but is offered over TCP only, at an address and a port of its own.
	ownSessions = 12
	// serverMaxConnections is mysqld's own choice (sql/sys_vars.cc).
	serverMaxConnections = 151
)

// maxConnections is the number of sessions that applications can have; false if the operator's value is not a number,
// which mysqld tells.
func (c Config) maxConnections() (int, bool) {
	value, set := c.extra("max_connections")
	if !set {
		return serverMaxConnections, true
	}
	n, err := strconv.Atoi(bytesOf(value))
	return n, err == nil && n > 0
}
