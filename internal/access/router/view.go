package router

import (
	"context"
	"crypto/tls"
	"slices"
	"time"

	"log/slog"
)

// Target is a mysqld that connections may be led to.
type Target struct {
	Name  string // node, for log lines and Stats
	Addr  string // host:port
	Epoch string // opaque; changes with the incarnation and, for a leader, the term
}

// View is where connections should go.
type View struct {
	RW     *Target  // the leader with writes open; nil: no such leader
	RO     []Target // healthy followers
	KeepRW bool     // with RW nil: leave open read-write connections alone, hold new ones
}

// equal compares by content; the order of RO counts, which at worst makes SetView do nothing a bit later.
func (v View) equal(w View) bool {
	return v.KeepRW == w.KeepRW && (v.RW == nil) == (w.RW == nil) && (v.RW == nil || *v.RW == *w.RW) &&
		slices.Equal(v.RO, w.RO)
}

func (v View) clone() View {
	v.RO = slices.Clone(v.RO)
	if v.RW != nil {
		rw := *v.RW
		v.RW = &rw
	}
	return v
}

// allows reports whether an open connection to t may go on under v.
func (v View) allows(readOnly bool, t Target) bool {
	if v.RW != nil && *v.RW == t {
		return true
	}
	if readOnly {
		return slices.Contains(v.RO, t)
	}
	return v.RW == nil && v.KeepRW
}

// serves reports whether a target's server may still be read, in whatever role.
func (v View) serves(t Target) bool {
	same := func(o Target) bool { return o.Name == t.Name && o.Addr == t.Addr }
	return v.RW != nil && same(*v.RW) || slices.ContainsFunc(v.RO, same)
}

// Config of a Router. Zero values of the limits take the defaults given here.
type Config struct {
	RWListen     string // host:port
	ROListen     string // host:port
	SplitListen  string // host:port; empty: there is no splitting port
	StreamListen string // host:port of the change stream; empty: it has no port of its own
	// RWSocket, ROSocket and SplitSocket are paths of unix sockets that lead to the same servers as the ports; empty:
	// no socket. Their sessions are always followed.
	RWSocket, ROSocket, SplitSocket string

	HoldTimeout time.Duration // default 10 s: how long a new connection waits for a target
	DialTimeout time.Duration // default 2 s: for one attempt to reach a target
	MaxConns    int           // default 10000: connections over both ports, held ones included; one more gets error 1040
	Limits      Limits        // of one client's address
	MaxHeld     int           // default 2000: of these, connections waiting for a target
	Logger      *slog.Logger  // default: slog.Default()
	// Confirm asks the target's node whether the target still serves its epoch now. It is called for each new
	// read-write connection, after the first bytes of its server. On an error the client waits and the target is tried
	// again. nil: views are trusted without asking.
	Confirm func(context.Context, Target) error

	// Sessions makes the router follow what clients and servers say, so that sessions can go on at another server.
	// Without it bytes are passed on unread, and a session ends with its server's role.
	Sessions bool
	// shown to clients that ask for TLS; nil: they get the server's, and their sessions end with its role
	TLS *tls.Config
	// ReplayReads repeats a read outside of a transaction at the next server, if nothing of its answer was passed on
	// before its server was lost.
	ReplayReads bool
	// OnQuiet is called when Quiet may have become true; it must not call the router.
	OnQuiet func()
	// Outcomes finds out what became of a statement whose answer was lost. Without it the client is told that it is not
	// known.
	Outcomes Outcomes

	// Streams serves the committed binary log to who asks for one, on any port, wherever the router sees that. Without
	// it such a client is refused.
	Streams Streams

	// Cluster answers followed sessions' statements about the cluster. Without it they are the server's, which does not
	// know them.
	Cluster Cluster

	// Reads tells how current servers are. Without it a session that has written reads from the leader.
	Reads              Reads
	Consistency        Level            // of sessions that have not set another
	Levels             map[string]Level // the same of some accounts, by user name
	ConsistencyTimeout time.Duration    // default 10 s: for what a level or a token waits for, on the server that is read
	// default 2 s: for a follower to show what a session wants to see; then the leader is read
	OwnWritesTimeout time.Duration
	// default 10 s, mysqld's connect_timeout: for one login, and for what the router itself says to a server before a
	// command
	LoginTimeout time.Duration
	MaxLag       time.Duration // followers that lag further are not read on the splitting port; 0: no limit
}

func (c Config) withDefaults() Config {
	if c.HoldTimeout == 0 {
		c.HoldTimeout = 10 * time.Second
	}
	if c.DialTimeout == 0 {
		c.DialTimeout = 2 * time.Second
	}
	if c.LoginTimeout == 0 {
		c.LoginTimeout = 10 * time.Second
	}
	if c.ConsistencyTimeout == 0 {
		c.ConsistencyTimeout = 10 * time.Second
	}
	if c.OwnWritesTimeout == 0 {
		c.OwnWritesTimeout = 2 * time.Second
	}
	if c.MaxConns == 0 {
		c.MaxConns = 10_000
	}
	if c.MaxHeld == 0 {
		c.MaxHeld = 2_000
	}
	// which mysqld does too; who has one may need it (login.explained)
	if c.TLS != nil && c.TLS.ClientAuth == tls.NoClientCert {
		c.TLS = c.TLS.Clone()
		c.TLS.ClientAuth = tls.RequestClientCert
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	return c
}

// Stats is the router's counters since it was started.
type Stats struct {
	RW    PortStats
	RO    PortStats
	Split PortStats // its connections to followers are in SplitReads
	// SplitReads counts the splitting port's connections to followers: Open, Cut, DialErrors and bytes.
	SplitReads PortStats
	Stream     PortStats      // sessions on the change stream's port until they ask for the log
	ByTarget   map[string]int // node name -> connections open now
	TiedBy     map[string]int // what ties sessions of RW and Split to the leader, for an operator -> how many now
}

// PortStats is one port's.
type PortStats struct {
	Open       int    // connections joined to a target now
	Held       int    // connections waiting for a target now
	Accepted   uint64 // connections accepted
	Refused    uint64 // turned away: too many, or no target in time
	Cut        uint64 // closed because their target lost its role
	DialErrors uint64 // attempts to reach a target that failed
	BytesIn    uint64 // client to server
	BytesOut   uint64 // server to client

	Followed int // sessions now that could be carried over
	// sessions now that could not: what they hold, or how they logged in, ties them to their server (Stats.TiedBy)
	Tied       int
	Carried    uint64 // sessions that went on at another server
	NotCarried uint64 // followed sessions that ended because they could not
	// transactions and statements that were lost with their server, whose clients were told to repeat them
	RolledBack uint64
	Unknown    uint64 // statements whose outcome the client was told is not known

	FollowerReads uint64 // statements of the splitting port that a follower answered
}
