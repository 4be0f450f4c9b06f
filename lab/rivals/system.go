package rivals

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"trireme/internal/base/config"
	"trireme/lab/faultfs"
	"trireme/lab/verify"
	"trireme/lab/wan"
)

// ErrNotHere: a system has no such thing (a way of access, a setting), or a program that it needs is missing. The
// message says why.
var ErrNotHere = errors.New("not here")

// Shape is what a system is started on.
type Shape struct {
	Topology *wan.Topology // nil: no emulated hosts, all on the loopback address
	// hosts and clients have an Ethernet switch besides, as virtual addresses need; Trireme only, with a topology
	Switch bool
	CPUs   float64 // that each host may use; 0: no limit
	// ServerCPUs is what each mysqld may use by itself, so that a router has CPU of its own; 0: no limit.
	ServerCPUs float64
	Nodes      int                // servers with data; 0: three. A standalone server is always one.
	Learners   int                // nodes with data and without a vote, on top; Trireme only
	Spare      int                // hosts on top on which nothing runs yet, for nodes that are added
	Variant    Variant            // one of the system's
	Options    map[string]string  // lines of my.cnf for all servers, on top
	Dir        string             // scratch; the caller makes and removes it
	Disks      bool               // each host's directory is a disk of its own (lab/faultfs)
	DiskSeed   uint64             // of what they lose
	Tune       func(*config.Node) // Trireme: changes of a node's settings; nil: none
}

func (s Shape) nodes() int {
	if s.Nodes == 0 {
		return 3
	}
	return s.Nodes
}

// Variant is a way to set a system up; a rival is judged by its best one. The first of a system's is what its users get
// by default.
type Variant struct {
	Name    string
	Options map[string]string // lines of my.cnf
	Usual   bool              // it suits most cells: where only one is run, it is this one, not the first
	Router  []string          // options of MySQL Router's bootstrap
}

// System is a candidate of a comparison.
type System struct {
	Name     string // as on the command line
	Title    string // with everything that matters
	Short    string // in tables
	Ours     bool
	Safe     bool // it promises to lose nothing that was acknowledged when a host is lost
	Variants []Variant
	// Missing says why the system cannot run on this machine, before anything is started; nil: nothing is needed
	// besides MySQL.
	Missing func(*Lab) error
	Start   func(context.Context, *Lab, Shape) (Running, error)
}

// Via is a way to a system.
type Via string

// The ways. A system that has no such way says ErrNotHere.
const (
	Direct Via = "direct" // to the server that takes writes
	// through the system's router, which stands on the client's host or on that of the server that takes writes
	Router Via = "router"
	Switch Via = "switch" // as Direct, over the Ethernet switch, which has no delay
	VIP    Via = "vip"    // through a virtual IP address, over the switch
)

// Target is where a client logs in.
type Target struct {
	From           *wan.Host // where a load generator has to stand; nil: on this machine
	Node           string    // that answers there
	Host           string
	Port           int
	User, Password string
}

// Open is a pool of connections there. A statement that takes longer than the limit fails.
func (t Target) Open(database string, limit time.Duration) (*sql.DB, error) {
	return verify.Login{Addr: verify.Fixed(net.JoinHostPort(t.Host, strconv.Itoa(t.Port))), User: t.User,
		Password: t.Password, StatementTimeout: limit}.Open(database)
}

// HostParts are the processes that share one host; 0: none. Extra are of the client's host: a router.
type HostParts struct {
	Name   string
	Leader bool
	MySQL  int
	Daemon int
	Extra  []int
	Budget *wan.Budget // of the host; nil: none
}

// Pids of all processes of the host.
func (h HostParts) Pids() []int {
	var out []int
	for _, p := range append([]int{h.MySQL, h.Daemon}, h.Extra...) {
		if p != 0 {
			out = append(out, p)
		}
	}
	return out
}

// Running is a system that has been started. Its methods are called by one goroutine at a time.
type Running interface {
	// Targets are where clients write: one, or one for each server that takes writes.
	Targets(Via) ([]Target, error)
	// Hosts lists the processes of each host, the leader's first.
	Hosts() []HostParts
	// DB is a connection with every privilege to the server of a host.
	DB(host string) *sql.DB
	// Settle makes sure that the system is as it should be (roles, all members present, semi-sync on). It is called
	// before each measurement.
	Settle(context.Context) error
	// Backlog counts the transactions that were committed and that the slowest server has not applied yet.
	Backlog(context.Context) (int64, error)
	// Disk of a host; nil without Shape.Disks.
	Disk(host string) *faultfs.FS
	// Network that the hosts stand in; nil without a topology.
	Network() *wan.Net
	// Stop ends everything; nothing is kept.
	Stop() error
}

// Systems in the order in which they run and are shown.
func Systems() []System {
	return []System{standaloneSystem, asyncSystem, semisyncSystem, mgrEventualSystem, mgrAfterSystem, mgrMultiSystem,
		mgrRouterSystem, triremeSystem, triremeDoubleSystem, triremeLoggerSystem, triremeLoggersSystem}
}

// Find looks a system up by its name.
func Find(name string) (System, error) {
	var known []string
	for _, s := range Systems() {
		if s.Name == name {
			return s, nil
		}
		known = append(known, s.Name)
	}
	return System{}, fmt.Errorf("no system %q; there are: %s", name, strings.Join(known, ", "))
}
