package config

import "strconv"

// setting describes one key of the TOML file. The table below is the only list of keys: reading, defaults, the file
// that init writes and the test of docs/configuration.md all use it.
type setting struct {
	key  string            // dotted
	def  string            // default as a file would hold it; "" means none
	doc  string            // one line, for the file that init writes
	dest func(n *Node) any // *string, *[]string, *int, *Bytes, *Duration or *map[string]string
}

var settings = []setting{
	{"cluster", "", "name of the cluster", func(n *Node) any { return &n.Cluster }},
	{"name", "", "name of this node, unique in the cluster", func(n *Node) any { return &n.Name }},
	{"dir", "", "everything this node owns lies below it", func(n *Node) any { return &n.Dir }},

	{"mysql.binary", "", "mysqld; empty: $MYSQLD, then PATH, then the project's cache",
		func(n *Node) any { return &n.MySQL.Binary }},
	{"mysql.bind", "0.0.0.0", "address mysqld listens on", func(n *Node) any { return &n.MySQL.Bind }},
	{"mysql.port", "3306", "TCP port of mysqld", func(n *Node) any { return &n.MySQL.Port }},
	{"mysql.advertise", "", "host by which others reach this mysqld; empty: the host of peer.advertise",
		func(n *Node) any { return &n.MySQL.Advertise }},
	{"mysql.durability", DurabilityLog, "log: the raft log's fsync counts; double: mysqld flushes each commit too",
		func(n *Node) any { return &n.MySQL.Durability }},
	{"mysql.os_user", "", "user to run mysqld as when the daemon is root; empty: the daemon's own",
		func(n *Node) any { return &n.MySQL.OSUser }},
	{"mysql.seed_rate", "100MiB", "most that seeding this node reads from another in a second; \"0B\": no limit",
		func(n *Node) any { return &n.MySQL.SeedRate }},
	{"mysql.options", "", "more lines for my.cnf", func(n *Node) any { return &n.MySQL.Options }},

	{"peer.listen", "0.0.0.0:7306", "where the other nodes connect", func(n *Node) any { return &n.Peer.Listen }},
	{"peer.advertise", "", "host:port by which the other nodes reach it", func(n *Node) any { return &n.Peer.Advertise }},
	{"peer.known", "",
		"other nodes that have moved, as \"db2=host:port db3=host:port\"; tried besides what the cluster knows",
		func(n *Node) any { return &n.Peer.Known }},
	{"peer.compression", CompressAuto, "off; auto: what is sent while the network holds it up; always: all log entries",
		func(n *Node) any { return &n.Peer.Compression }},

	{"api.listen", "0.0.0.0:8008", "health checks, status and control over HTTP and HTTPS",
		func(n *Node) any { return &n.API.Listen }},
	{"api.advertise", "", "host:port by which others reach it", func(n *Node) any { return &n.API.Advertise }},

	{"router.bind", "0.0.0.0", "address of the router's ports", func(n *Node) any { return &n.Router.Bind }},
	{"router.rw_port", "6446", "leads to the leader", func(n *Node) any { return &n.Router.RWPort }},
	{"router.ro_port", "6447", "leads to the followers", func(n *Node) any { return &n.Router.ROPort }},
	{"router.split_port", "6450", "sends reads to a follower and all else to the leader; 0: no such port",
		func(n *Node) any { return &n.Router.SplitPort }},
	{"router.stream_port", "7307",
		"serves the committed binary log to replicas, mysqlbinlog and change data capture; 0: no such port",
		func(n *Node) any { return &n.Router.StreamPort }},
	{"router.rw_socket", "", "path of a unix socket that leads where rw_port does; its sessions are always followed",
		func(n *Node) any { return &n.Router.RWSocket }},
	{"router.ro_socket", "", "the same of ro_port", func(n *Node) any { return &n.Router.ROSocket }},
	{"router.split_socket", "", "the same of split_port", func(n *Node) any { return &n.Router.SplitSocket }},
	{"router.hold_timeout", "10s", "how long a new connection waits for a leader",
		func(n *Node) any { return &n.Router.HoldTimeout }},
	{"router.sessions", SessionsCarry,
		"carry: sessions continue at the next leader; pass: bytes are passed through unread",
		func(n *Node) any { return &n.Router.Sessions }},
	{"router.replay", ReplayNone,
		"reads: a SELECT outside of a transaction that loses its server runs at the next one, for sessions that are followed",
		func(n *Node) any { return &n.Router.Replay }},
	{"router.consistency", "EVENTUAL",
		"EVENTUAL, BEFORE_ON_PRIMARY_FAILOVER, BEFORE, AFTER or BEFORE_AND_AFTER; more than EVENTUAL needs sessions = \"carry\"", func(n *Node) any { return &n.Router.Consistency }},
	{"router.consistency_timeout", "10s", "for a level, or a token, to be kept; then the statement gets an error",
		func(n *Node) any { return &n.Router.ConsistencyTimeout }},
	{"router.wait_for_my_writes_timeout", "2s",
		"for a follower to show what a session wants to see; then the leader is read",
		func(n *Node) any { return &n.Router.OwnWritesTimeout }},
	{"router.max_lag", "0s", "followers that lag more are not read through split_port; \"0s\": no limit",
		func(n *Node) any { return &n.Router.MaxLag }},
	{"router.tls_cert", "",
		"certificate shown to clients whose sessions are followed; empty: mysqld's ssl_cert, or the node's own",
		func(n *Node) any { return &n.Router.TLSCert }},
	{"router.tls_key", "", "its key", func(n *Node) any { return &n.Router.TLSKey }},
	{"router.max_conns", "10000", "connections over all ports; one more gets error 1040",
		func(n *Node) any { return &n.Router.MaxConns }},
	{"router.max_conns_per_address", "0", "the same from one client's address; 0: no limit",
		func(n *Node) any { return &n.Router.MaxConnsPerAddress }},
	{"router.max_conn_rate", "0",
		"new connections a second from one client's address; one more gets error 1040; 0: no limit",
		func(n *Node) any { return &n.Router.MaxConnRate }},
	{"router.balancers", "",
		"addresses or networks of balancers that name their clients with the PROXY protocol: [\"10.0.0.5\", \"10.1.0.0/24\"]",
		func(n *Node) any { return &n.Router.Balancers }},
	{"router.levels", "", "consistency of single accounts, by user name", func(n *Node) any { return &n.Router.Levels }},

	{"vip.rw", "", "virtual address of the leader's mysqld, as \"10.0.0.100/24\"; a list for more",
		func(n *Node) any { return &n.VIP.RW }},
	{"vip.ro", "", "virtual addresses of followers' mysqlds, spread over them", func(n *Node) any { return &n.VIP.RO }},
	{"vip.interface", "", "interface for them; empty: the one with an address of their subnet",
		func(n *Node) any { return &n.VIP.Interface }},

	{"raft.election_timeout_ms", "1000", "silence of the leader after which a follower campaigns",
		func(n *Node) any { return &n.Raft.ElectionTimeoutMS }},
	{"raft.heartbeat_ms", "100", "pause between two signs of life of the leader",
		func(n *Node) any { return &n.Raft.HeartbeatMS }},
	{"raft.log_cache", "64MiB", "recent entries kept in memory", func(n *Node) any { return &n.Raft.LogCache }},
	{"raft.log_segment", "64MiB", "size at which a new log segment is begun",
		func(n *Node) any { return &n.Raft.LogSegment }},
	{"raft.log_max", "4GiB", "size the log is purged down to, as far as safety allows",
		func(n *Node) any { return &n.Raft.LogMax }},
	{"raft.log_limit", "0B",
		"size beyond which data nodes that are away are given up, or writes are refused; \"0B\": what the disk has room for",
		func(n *Node) any { return &n.Raft.LogLimit }},
	{"raft.log_key_file", "",
		"file, mode 0600, with the keys that the log's segments are encrypted with; empty: they are not",
		func(n *Node) any { return &n.Raft.LogKeyFile }},
	{"raft.log_key_command", "",
		"command that prints what would be in that file, such as a KMS's client; a list of words, no shell",
		func(n *Node) any { return &n.Raft.LogKeyCommand }},
	{"raft.max_inflight", "32MiB", "proposed and not yet committed; more waits",
		func(n *Node) any { return &n.Raft.MaxInflight }},
	{"raft.chunk_size", "1MiB", "a larger transaction travels in pieces of this size",
		func(n *Node) any { return &n.Raft.ChunkSize }},

	{"recorder.keep", "128MiB",
		"space for samples of the load, for trireme report; at most 7 days; \"0B\": none are taken",
		func(n *Node) any { return &n.Recorder.Keep }},

	{"log.level", "info", "debug, info, warn or error", func(n *Node) any { return &n.Log.Level }},
}

// Default is a Node with every default filled in. Cluster, Name, Dir and the two advertised addresses have none.
func Default() Node {
	var n Node
	for _, s := range settings {
		if s.def == "" {
			continue
		}
		var value any = s.def
		if i, err := strconv.ParseInt(s.def, 10, 64); err == nil {
			value = i
		}
		if err := assign(s.dest(&n), value); err != nil {
			panic("config: default of " + s.key + ": " + err.Error())
		}
	}
	return n
}
