package config

import (
	"fmt"
	"maps"
	"net"
	"net/netip"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Validate checks a Node made in code; Load does it by itself.
func (n Node) Validate() error {
	if err := n.validate(document{file: n.File}); err != nil {
		return err
	}
	return nil
}

func (n Node) validate(doc document) error {
	checks := []func(document) *Error{
		n.checkNames, n.checkMySQL, n.checkAddresses, n.checkPorts, n.checkVIP, n.checkRouter, n.checkRaft, n.checkLog}
	for _, check := range checks {
		if err := check(doc); err != nil {
			return err
		}
	}
	return nil
}

func (n Node) checkNames(doc document) *Error {
	for _, s := range [][2]string{{"cluster", n.Cluster}, {"name", n.Name}, {"dir", n.Dir}} {
		if s[1] == "" {
			return doc.fail(s[0], "is missing", fmt.Sprintf("add a line: %s = \"…\"", s[0]))
		}
	}
	if err := CheckName("cluster", n.Cluster); err != nil {
		return doc.fail("cluster", err.Error(), "")
	}
	if err := CheckName("node", n.Name); err != nil {
		return doc.fail("name", err.Error(), "")
	}
	return nil
}

// CheckName accepts what fits in a certificate, a file name and a host name alike.
func CheckName(kind, name string) error {
	ok := name != "" && len(name) <= 40
	for i, r := range name {
		letter := r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9'
		if !letter && (i == 0 || (r != '-' && r != '_')) {
			ok = false
		}
	}
	if !ok {
		return fmt.Errorf("%s name %q is not usable; 1 to 40 letters, digits, '-' and '_', the first a letter or digit", kind,
			name)
	}
	return nil
}

func (n Node) checkMySQL(doc document) *Error {
	if d := n.MySQL.Durability; d != DurabilityLog && d != DurabilityDouble {
		return doc.fail("mysql.durability", fmt.Sprintf("%q is not a durability mode", d), `write "log" or "double"`)
	}
	if k := n.Recorder.Keep; k != 0 && (k < 4*MiB || k > TiB) {
		return doc.fail("recorder.keep", fmt.Sprintf("%v is not between 4MiB and 1TiB", k), "\"0B\": nothing is recorded")
	}
	if r := n.MySQL.SeedRate; r != 0 && r < MiB {
		return doc.fail("mysql.seed_rate", fmt.Sprintf("%v is less than 1MiB in a second", r),
			`write a larger rate, or "0B" for no limit`)
	}
	for _, name := range sortedKeys(n.MySQL.Options) {
		key := "mysql.options." + name
		if reason := ownedOption(name); reason != "" {
			if doc.line(key) == 0 {
				key = "mysql.options." + strings.ReplaceAll(name, "_", "-")
			}
			return doc.fail(key, reason, "remove the line")
		}
	}
	return nil
}

func (n Node) checkAddresses(doc document) *Error {
	for _, a := range [][2]string{{"peer.listen", n.Peer.Listen}, {"api.listen", n.API.Listen}} {
		if _, _, err := splitAddress(a[1]); err != nil {
			return doc.fail(a[0], err.Error(), "")
		}
	}
	for _, a := range [][2]string{{"peer.advertise", n.Peer.Advertise}, {"api.advertise", n.API.Advertise}} {
		if a[1] == "" {
			return doc.fail(a[0], "is missing", "give the host:port by which the other nodes reach this one")
		}
		if err := CheckAdvertise(a[1]); err != nil {
			return doc.fail(a[0], err.Error(), "")
		}
	}
	if _, err := n.Peer.KnownPeers(); err != nil {
		return doc.fail("peer.known", err.Error(), `write "db2=host:port db3=host:port"`)
	}
	if c := n.Peer.Compression; c != CompressOff && c != CompressAuto && c != CompressAlways {
		return doc.fail("peer.compression", fmt.Sprintf("%q is not a way to compress", c), `write "off", "auto" or "always"`)
	}
	if b := n.MySQL.Bind; b == "" || strings.ContainsAny(b, " ,/") {
		return doc.fail("mysql.bind", fmt.Sprintf("%q is not an address", b), `write one address; "0.0.0.0" listens on all`)
	}
	return nil
}

// CheckAdvertise accepts host:port that another host can use: a name or an address, but not a wildcard.
func CheckAdvertise(addr string) error {
	host, _, err := splitAddress(addr)
	if err != nil {
		return err
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		return fmt.Errorf("%q is not an address that another host can connect to; give this host's own name or address", addr)
	}
	return nil
}

func splitAddress(addr string) (host string, port int, err error) {
	host, text, err := net.SplitHostPort(addr)
	if err != nil {
		return "", 0, fmt.Errorf("%q is not host:port", addr)
	}
	port, err = strconv.Atoi(text)
	if err != nil || !validPort(port) {
		return "", 0, fmt.Errorf("port %q of %q is not in 1..65535", text, addr)
	}
	return host, port, nil
}

// checkPorts refuses two listeners on one port. The daemon would find out too, but only after it has started a mysqld.
func (n Node) checkPorts(doc document) *Error {
	type listener struct {
		key, host string
		port      int
	}
	listeners := []listener{
		{"mysql.port", n.MySQL.Bind, n.MySQL.Port},
		{"router.rw_port", n.Router.Bind, n.Router.RWPort},
		{"router.ro_port", n.Router.Bind, n.Router.ROPort},
	}
	if n.Router.SplitPort != 0 {
		listeners = append(listeners, listener{"router.split_port", n.Router.Bind, n.Router.SplitPort})
	}
	if n.Router.StreamPort != 0 {
		listeners = append(listeners, listener{"router.stream_port", n.Router.Bind, n.Router.StreamPort})
	}
	for _, a := range [][2]string{{"peer.listen", n.Peer.Listen}, {"api.listen", n.API.Listen}} {
		host, port, err := splitAddress(a[1])
		if err != nil {
			return doc.fail(a[0], err.Error(), "")
		}
		listeners = append(listeners, listener{a[0], host, port})
	}
	for i, l := range listeners {
		if !validPort(l.port) {
			return doc.fail(l.key, fmt.Sprintf("port %d is not in 1..65535", l.port), "")
		}
		for _, other := range listeners[:i] {
			if l.port == other.port && overlap(l.host, other.host) {
				return doc.fail(l.key, fmt.Sprintf("port %d is taken by %s already", l.port, other.key), "give each its own port")
			}
		}
	}
	return nil
}

// checkVIP refuses what cannot work on any host; `trireme vip check` looks at this one.
func (n Node) checkVIP(doc document) *Error {
	const shape = "write address/bits of the subnet, such as \"10.0.0.100/24\""
	seen := map[netip.Addr]bool{}
	for _, l := range []struct {
		key string
		vip VIP
	}{{"vip.rw", VIP{RW: n.VIP.RW}}, {"vip.ro", VIP{RO: n.VIP.RO}}} {
		rw, ro, err := l.vip.Addresses()
		if err != nil {
			return doc.fail(l.key, err.Error(), shape)
		}
		for _, p := range append(rw, ro...) {
			a := p.Addr()
			if seen[a] {
				return doc.fail(l.key, fmt.Sprintf("%s is given twice", a), "an address is either read-write or read-only, once")
			}
			seen[a] = true
			if !hears(n.MySQL.Bind, a) {
				return doc.fail("mysql.bind", fmt.Sprintf("a mysqld that listens on %s does not answer at the virtual address %s",
					n.MySQL.Bind, a),
					`write "0.0.0.0", or "*" for IPv6 too`)
			}
			for _, own := range []string{n.Peer.Advertise, n.API.Advertise} {
				if host, _, err := splitAddress(own); err == nil && host == a.String() {
					return doc.fail(l.key, fmt.Sprintf("%s is this node's own address (%s), and a virtual one moves", a, own),
						"give an address that no host has")
				}
			}
		}
	}
	if len(seen) == 0 && n.VIP.Interface != "" {
		return doc.fail("vip.interface", "there is no virtual address for it", "give vip.rw or vip.ro, or remove the line")
	}
	return nil
}

// hears reports whether a server that listens on bind answers at an address that its host gets later.
func hears(bind string, a netip.Addr) bool {
	ip, err := netip.ParseAddr(bind)
	return bind == "*" || err == nil && ip.IsUnspecified() && (ip.Is6() || a.Is4())
}

func overlap(a, b string) bool {
	wild := func(h string) bool {
		ip := net.ParseIP(h)
		return h == "" || h == "*" || ip != nil && ip.IsUnspecified()
	}
	return a == b || wild(a) || wild(b)
}

func (n Node) checkRaft(doc document) *Error {
	r := n.Raft
	if r.HeartbeatMS < 5 || r.HeartbeatMS > 10_000 {
		return doc.fail("raft.heartbeat_ms", fmt.Sprintf("%d is not in 5..10000", r.HeartbeatMS), "")
	}
	if r.ElectionTimeoutMS < 3*r.HeartbeatMS || r.ElectionTimeoutMS > 600_000 {
		return doc.fail("raft.election_timeout_ms", fmt.Sprintf("%d is not between three heartbeats (%d) and 600000",
			r.ElectionTimeoutMS, 3*r.HeartbeatMS),
			"one lost heartbeat must not depose a leader")
	}
	limits := []struct {
		key      string
		v        Bytes
		min, max Bytes
	}{
		{"raft.log_cache", r.LogCache, MiB, 64 * GiB},
		{"raft.log_segment", r.LogSegment, MiB, GiB},
		{"raft.log_max", r.LogMax, 2 * r.LogSegment, 1024 * TiB},
		{"raft.max_inflight", r.MaxInflight, r.ChunkSize, 4 * GiB},
		{"raft.chunk_size", r.ChunkSize, 4 * KiB, 64 * MiB},
	}
	for _, l := range limits {
		if l.v < l.min || l.v > l.max {
			return doc.fail(l.key, fmt.Sprintf("%v is not between %v and %v", l.v, l.min, l.max), "")
		}
	}
	if least := r.LogMax + 2*r.LogSegment; r.LogLimit != 0 && (r.LogLimit < least || r.LogLimit > 1024*TiB) {
		return doc.fail("raft.log_limit", fmt.Sprintf("%v is not between raft.log_max with two segments, %v, and 1024TiB",
			r.LogLimit, least),
			"\"0B\": as far as the disk goes")
	}
	if r.LogKeyFile != "" && len(r.LogKeyCommand) > 0 {
		return doc.fail("raft.log_key_command", "there is raft.log_key_file too",
			"the keys come from one of both: remove the other line")
	}
	return nil
}

// checkRouter checks the settings that a router needs with a node and without one.
func (n Node) checkRouter(doc document) *Error {
	r := n.Router
	if r.Bind == "" || strings.ContainsAny(r.Bind, " ,/") {
		return doc.fail("router.bind", fmt.Sprintf("%q is not an address", r.Bind),
			`write one address; "0.0.0.0" listens on all`)
	}
	for _, p := range []struct {
		key  string
		port int
	}{{"router.rw_port", r.RWPort}, {"router.ro_port", r.ROPort}} {
		if !validPort(p.port) {
			return doc.fail(p.key, fmt.Sprintf("port %d is not in 1..65535", p.port), "")
		}
	}
	if r.RWPort == r.ROPort {
		return doc.fail("router.ro_port", fmt.Sprintf("port %d is taken by router.rw_port already", r.ROPort),
			"give each its own port")
	}
	if p := r.SplitPort; p != 0 && !validPort(p) {
		return doc.fail("router.split_port", fmt.Sprintf("port %d is not in 1..65535", p), "0: no such port")
	} else if p == r.RWPort || p == r.ROPort {
		return doc.fail("router.split_port", fmt.Sprintf("port %d is taken by router.rw_port or router.ro_port already", p),
			"give each its own port")
	}
	if p := r.StreamPort; p != 0 && !validPort(p) {
		return doc.fail("router.stream_port", fmt.Sprintf("port %d is not in 1..65535", p), "0: no such port")
	}
	if err := n.checkConsistency(doc); err != nil {
		return err
	}
	if h := n.Router.HoldTimeout.Std(); h <= 0 || h.Hours() > 1 {
		return doc.fail("router.hold_timeout", fmt.Sprintf("%v is not between 1ms and 1h", n.Router.HoldTimeout), "")
	}
	if s := n.Router.Sessions; s != SessionsPass && s != SessionsCarry {
		return doc.fail("router.sessions", fmt.Sprintf("%q is not a way to treat sessions", s), `write "pass" or "carry"`)
	}
	if r := n.Router.Replay; r != ReplayNone && r != ReplayReads {
		return doc.fail("router.replay", fmt.Sprintf("%q is not a kind of statement to repeat", r), `write "none" or "reads"`)
	}
	if (n.Router.TLSCert == "") != (n.Router.TLSKey == "") {
		return doc.fail("router.tls_cert", "comes with router.tls_key or not at all", "set both, or none")
	}
	if m := n.Router.MaxConns; m < 1 || m > 1_000_000 {
		return doc.fail("router.max_conns", fmt.Sprintf("%d is not in 1..1000000", m), "")
	}
	for _, m := range []struct {
		key string
		n   int
	}{{"router.max_conns_per_address", n.Router.MaxConnsPerAddress}, {"router.max_conn_rate", n.Router.MaxConnRate}} {
		if m.n < 0 || m.n > 1_000_000 {
			return doc.fail(m.key, fmt.Sprintf("%d is not in 0..1000000", m.n), "0: no limit")
		}
	}
	taken := map[string]string{} // path to key
	for _, key := range slices.Sorted(maps.Keys(n.Router.Sockets())) {
		switch path := n.Router.Sockets()[key]; {
		case !filepath.IsAbs(path) || filepath.Clean(path) != path:
			return doc.fail(key, fmt.Sprintf("%q is not an absolute path", path), "")
		case len(path) > maxSocketPath:
			return doc.fail(key, fmt.Sprintf("is a path of %d bytes; the system allows %d", len(path), maxSocketPath),
				"choose a shorter one")
		case taken[path] != "":
			return doc.fail(key, fmt.Sprintf("%s is taken by %s already", path, taken[path]), "give each its own path")
		default:
			taken[path] = key
		}
	}
	if n.Router.SplitSocket != "" && n.Router.SplitPort == 0 {
		return doc.fail("router.split_socket", "needs router.split_port", "")
	}
	if _, err := n.Router.BalancerNets(); err != nil {
		return doc.fail("router.balancers", err.Error(), `write ["10.0.0.5", "10.1.0.0/24"]`)
	}
	return nil
}

// maxSocketPath is what sockaddr_un.sun_path holds, less the closing zero byte.
const maxSocketPath = 107

// levels of consistency, as internal/access/router has them.
var levels = []string{"EVENTUAL", "BEFORE_ON_PRIMARY_FAILOVER", "BEFORE", "AFTER", "BEFORE_AND_AFTER"}

func (n Node) checkConsistency(doc document) *Error {
	r := n.Router
	if !slices.Contains(levels, r.Consistency) {
		return doc.fail("router.consistency", fmt.Sprintf("%q is not a level of consistency", r.Consistency),
			"there are "+strings.Join(levels, ", "))
	}
	if r.Consistency != levels[0] && r.Sessions != SessionsCarry {
		return doc.fail("router.consistency", r.Consistency+" cannot be kept for sessions that are not followed",
			`set router.sessions = "carry"`)
	}
	for user, level := range r.Levels {
		if !slices.Contains(levels, level) {
			return doc.fail("router.levels", fmt.Sprintf("%q, of %s, is not a level of consistency", level, user),
				"there are "+strings.Join(levels, ", "))
		}
		if level != levels[0] && r.Sessions != SessionsCarry {
			return doc.fail("router.levels", level+" cannot be kept for sessions that are not followed",
				`set router.sessions = "carry"`)
		}
	}
	for _, t := range []struct {
		key string
		d   Duration
		min time.Duration
	}{{"router.consistency_timeout", r.ConsistencyTimeout, time.Millisecond},
		{"router.wait_for_my_writes_timeout", r.OwnWritesTimeout, time.Millisecond}, {"router.max_lag", r.MaxLag, 0}} {
		if d := t.d.Std(); d < t.min || d > time.Hour {
			return doc.fail(t.key, fmt.Sprintf("%v is not between %v and 1h", t.d, t.min), "")
		}
	}
	return nil
}

func (n Node) checkLog(doc document) *Error {
	if !slices.Contains([]string{"debug", "info", "warn", "error"}, n.Log.Level) {
		return doc.fail("log.level", fmt.Sprintf("%q is not a level", n.Log.Level), "write debug, info, warn or error")
	}
	return nil
}

// ownedPrefixes and ownedOptions are what Trireme sets itself, because a safety rule hangs on the value.
var ownedPrefixes = []string{"rpl_semi_sync_", "relay_log", "log_bin", "gtid_", "replica_", "slave_", "binlog_order",
	"binlog_format", "binlog_error_action"}

var ownedOptions = []string{
	"server_id", "server_uuid", "datadir", "socket", "port", "bind_address", "pid_file", "log_error",
	"log_replica_updates", "log_slave_updates", "enforce_gtid_consistency", "read_only", "super_read_only",
	"skip_replica_start", "skip_slave_start", "sync_binlog", "innodb_flush_log_at_trx_commit", "innodb_doublewrite",
	"persisted_globals_load", "disabled_storage_engines", "event_scheduler", "init_file", "plugin_load", "partial_revokes",
	"binlog_checksum", "skip_log_bin", "user", "mysqlx", "offline_mode",
}

// tunableOptions match a prefix above, but no safety rule hangs on them.
var tunableOptions = []string{"replica_parallel_workers", "replica_pending_jobs_size_max", "relay_log_space_limit",
	"log_bin_trust_function_creators"}

// ownedOption says why a my.cnf option may not be given, "" when it may.
func ownedOption(name string) string {
	bare := strings.TrimPrefix(name, "loose_")
	owned := slices.Contains(ownedOptions, bare)
	for _, p := range ownedPrefixes {
		owned = owned || strings.HasPrefix(bare, p)
	}
	if !owned || slices.Contains(tunableOptions, bare) {
		return ""
	}
	return "is set by Trireme itself"
}

func sortedKeys(m map[string]string) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
