package config

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// DefaultFile is where a node's settings are looked for when --config is not given, and DefaultDir the directory of the
// node that they are of: the one that a package's service runs.
const (
	DefaultFile = "/etc/trireme/trireme.toml"
	DefaultDir  = "/var/lib/trireme"
)

// SettingsFile is where the settings of a node in dir are: next to it, except for the node that a service runs.
func SettingsFile(dir string) string {
	if filepath.Clean(dir) == DefaultDir {
		return DefaultFile
	}
	return filepath.Join(dir, NodeFileName)
}

// Node is the settings of one node, as its TOML file gives them with defaults filled in. Load returns only values that
// passed Validate. docs/configuration.md explains each one.
type Node struct {
	Cluster string // name of the cluster: letters, digits, '-' and '_'
	Name    string // name of this node, unique in the cluster
	Dir     string // absolute; everything the node owns lies below it

	MySQL    MySQL
	Peer     Peer
	API      API
	Router   Router
	VIP      VIP
	Raft     Raft
	Recorder Recorder
	Log      Log

	// File is where the settings came from; empty for a Node made in code.
	File string
}

// MySQL is how the node runs its mysqld. A logger ignores it.
type MySQL struct {
	Binary     string            // mysqld; empty: $MYSQLD, then PATH, then the project's cache
	Bind       string            // address mysqld listens on
	Port       int               // TCP port of mysqld
	Advertise  string            // host by which routers and clients reach it; empty: the host of peer.advertise
	Durability string            // DurabilityLog or DurabilityDouble
	OSUser     string            // user to run mysqld as when the daemon is root; empty: the daemon's own
	SeedRate   Bytes             // per second, that seeding this mysqld reads from the donor; 0: no limit
	Options    map[string]string // more lines for my.cnf, name to value, in option-file spelling with '_' for '-'
}

// What the router does with sessions.
const (
	SessionsPass  = "pass"  // bytes are passed on unread; a session ends with its server's role
	SessionsCarry = "carry" // sessions are followed, and go on at the next server
)

// What the router does with a statement that lost its server and has changed nothing.
const (
	ReplayNone  = "none"
	ReplayReads = "reads" // a read outside of a transaction is carried out again
)

// The durability modes: which fsync makes a commit durable.
const (
	DurabilityLog    = "log"    // the raft log's; mysqld flushes about once a second
	DurabilityDouble = "double" // the raft log's, and mysqld flushes each commit too
)

// Peer is where the raft peers of this node reach it.
type Peer struct {
	Listen    string // host:port
	Advertise string // host:port as the other nodes reach it
	Known     string // where others are that have moved: "db2=host:port db3=host:port"
	// Compression is of the log entries that this node sends: CompressOff, CompressAuto or CompressAlways.
	Compression string
}

// Values of peer.compression.
const (
	CompressOff    = "off"
	CompressAuto   = "auto"
	CompressAlways = "always"
)

// KnownPeers reads Known: node name to address.
func (p Peer) KnownPeers() (map[string]string, error) {
	out := map[string]string{}
	for _, f := range strings.FieldsFunc(p.Known, func(r rune) bool { return r == ' ' || r == ',' }) {
		name, addr, _ := strings.Cut(f, "=")
		if err := errors.Join(CheckName("node", name), CheckAdvertise(addr)); err != nil {
			return nil, fmt.Errorf("%q is not NODE=HOST:PORT", f)
		}
		out[name] = addr
	}
	return out, nil
}

// API is the HTTP control surface.
type API struct {
	Listen    string // host:port
	Advertise string // host:port as others reach it
}

// Router is the MySQL ports that lead to the right node.
type Router struct {
	Bind       string // address all ports listen on
	RWPort     int    // leads to the leader
	ROPort     int    // leads to the followers
	SplitPort  int    // sends each statement where it belongs; 0: there is no such port
	StreamPort int    // serves the committed binary log; 0: there is no such port
	// RWSocket, ROSocket and SplitSocket are paths of unix sockets in addition to the ports; empty: no socket.
	RWSocket    string
	ROSocket    string
	SplitSocket string
	HoldTimeout Duration // how long a new connection waits for a leader before it is told that there is no leader
	MaxConns    int      // connections over all ports; one more is refused with error 1040
	// MaxConnsPerAddress and MaxConnRate are of one client's address, the latter new ones a second; 0: no limit.
	MaxConnsPerAddress int
	MaxConnRate        int
	Balancers          []string // addresses or networks whose connections begin with a header of the PROXY protocol
	Sessions           string   // SessionsPass or SessionsCarry
	Replay             string   // ReplayNone or ReplayReads
	// PEM file shown to clients with SessionsCarry; empty: mysqld's in Options, or the node's own
	TLSCert string
	TLSKey  string // its key
	// Consistency is the level of sessions that have not set another, as router.ParseLevel reads it; the others are
	// what its waits take at most.
	Consistency        string
	Levels             map[string]string // the same of accounts, by user name
	ConsistencyTimeout Duration
	OwnWritesTimeout   Duration
	MaxLag             Duration // followers that lag further are not read through SplitPort; 0: no limit
}

// RWAddr is where the read-write port listens.
func (r Router) RWAddr() string { return r.addr(r.RWPort) }

// ROAddr is where the read-only port listens.
func (r Router) ROAddr() string { return r.addr(r.ROPort) }

// SplitAddr is where the splitting port listens; empty: no such port.
func (r Router) SplitAddr() string { return r.addr(r.SplitPort) }

// StreamAddr is where the change stream's port listens; empty: no such port.
func (r Router) StreamAddr() string { return r.addr(r.StreamPort) }

func (r Router) addr(port int) string {
	if port == 0 {
		return ""
	}
	return net.JoinHostPort(r.Bind, strconv.Itoa(port))
}

// Sockets are the paths of the unix sockets, by setting.
func (r Router) Sockets() map[string]string {
	all := map[string]string{"router.rw_socket": r.RWSocket, "router.ro_socket": r.ROSocket,
		"router.split_socket": r.SplitSocket}
	maps.DeleteFunc(all, func(_, path string) bool { return path == "" })
	return all
}

// BalancerNets reads Balancers.
func (r Router) BalancerNets() ([]netip.Prefix, error) {
	var out []netip.Prefix
	for _, b := range r.Balancers {
		p, err := netip.ParsePrefix(b)
		if a, aerr := netip.ParseAddr(b); aerr == nil {
			p, err = netip.PrefixFrom(a, a.BitLen()), nil
		}
		if err != nil {
			return nil, fmt.Errorf("%q is neither an address nor a network", b)
		}
		out = append(out, p.Masked())
	}
	return out, nil
}

// VIP is the virtual IP addresses of the cluster, the same on every node. Empty: no virtual addresses.
type VIP struct {
	RW        []string // address/bits, on the leader
	RO        []string // address/bits, one each on the followers
	Interface string   // that they are bound to; empty: the one with an address of their subnet
}

// Addresses reads RW and RO.
func (v VIP) Addresses() (rw, ro []netip.Prefix, err error) {
	for _, l := range []struct {
		texts []string
		to    *[]netip.Prefix
	}{{v.RW, &rw}, {v.RO, &ro}} {
		for _, text := range l.texts {
			p, err := netip.ParsePrefix(text)
			a := p.Addr()
			if err != nil || p.Bits() == 0 || a.Is4In6() || !a.IsGlobalUnicast() {
				return nil, nil,
					fmt.Errorf(
						"%q is not a virtual address with the length of its subnet, such as \"10.0.0.100/24\" or \"fd00::100/64\"", text)
			}
			*l.to = append(*l.to, p)
		}
	}
	return rw, ro, nil
}

// Raft is timing and size limits of the consensus log of this node.
type Raft struct {
	ElectionTimeoutMS int      // silence of the leader after which a follower campaigns
	HeartbeatMS       int      // pause between two signs of life of the leader
	LogCache          Bytes    // recent entries kept in memory
	LogSegment        Bytes    // size at which a log segment is closed and a new one begun
	LogMax            Bytes    // what the log is purged down to, as far as safety allows
	LogLimit          Bytes    // above which this node's log should take no more; 0: as far as its disk goes
	LogKeyFile        string   // keys that the log's segments are encrypted with: raftlog.LoadKeys
	LogKeyCommand     []string // prints them; at most one of both
	MaxInflight       Bytes    // proposed and not yet committed; more waits
	ChunkSize         Bytes    // a transaction larger than this travels in pieces
}

// ElectionTimeout as a time.
func (r Raft) ElectionTimeout() time.Duration {
	return time.Duration(r.ElectionTimeoutMS) * time.Millisecond
}

// Heartbeat as a time.
func (r Raft) Heartbeat() time.Duration { return time.Duration(r.HeartbeatMS) * time.Millisecond }

// Recorder is what this node keeps of its load for reports.
type Recorder struct {
	Keep Bytes // of all samples; 0: none are taken
}

// Log is the daemon's own diagnostics.
type Log struct {
	Level string // debug, info, warn, error
}

// MySQLHost is the host by which others reach this node's mysqld.
func (n Node) MySQLHost() string {
	if n.MySQL.Advertise != "" {
		return n.MySQL.Advertise
	}
	host, _, err := net.SplitHostPort(n.Peer.Advertise)
	if err != nil {
		return ""
	}
	return host
}

// Member is this node's record in the cluster settings.
func (n Node) Member(id uint64, role string) Member {
	m := Member{
		ID: id, Name: n.Name, Role: role, Peer: n.Peer.Advertise, API: n.API.Advertise,
		RWPort: n.Router.RWPort, ROPort: n.Router.ROPort,
	}
	if role != RoleLogger {
		m.MySQLHost, m.MySQLPort, m.Weight = n.MySQLHost(), n.MySQL.Port, DefaultWeight
	}
	return m
}

// Files and folders of a node's directory. internal/base/pki and internal/mysql/mysqld own what is below TLSDir and
// MySQLDir.
func (n Node) IdentityFile() string { return filepath.Join(n.Dir, IdentityName) }
func (n Node) ClusterFile() string  { return filepath.Join(n.Dir, ClusterName) }
func (n Node) SecretsFile() string  { return filepath.Join(n.Dir, SecretsName) }
func (n Node) TLSDir() string       { return filepath.Join(n.Dir, "tls") }
func (n Node) RaftDir() string      { return filepath.Join(n.Dir, "raft") }
func (n Node) MySQLDir() string     { return filepath.Join(n.Dir, "mysql") }

// Names of the files in a node's directory.
const (
	IdentityName = "identity.json"
	ClusterName  = "cluster.json"
	SecretsName  = "secrets.json"
	NodeFileName = "trireme.toml"
)
