package rivals

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"strconv"
	"time"

	"trireme/internal/api"
	"trireme/internal/base/config"
	"trireme/internal/ops/demo"
	"trireme/lab/faultfs"
	"trireme/lab/verify"
	"trireme/lab/wan"
)

var (
	triremeSystem = System{Name: "trireme", Title: "Trireme, three voters with data", Short: "Trireme", Ours: true,
		Safe: true, Variants: []Variant{{Name: "default"}}, Start: triremeStarter(noLogger, config.DurabilityLog)}
	triremeDoubleSystem = System{Name: "trireme-double", Title: "Trireme, three voters with data, durability = double",
		Short: "Trireme double", Ours: true, Safe: true, Variants: []Variant{{Name: "default"}},
		Start: triremeStarter(noLogger, config.DurabilityDouble)}
	triremeLoggerSystem = System{Name: "trireme-logger", Title: "Trireme, two voters with data and a logger",
		Short: "Trireme 2+1", Ours: true, Safe: true, Variants: []Variant{{Name: "default"}},
		Start: triremeStarter(oneLogger, config.DurabilityLog)}
	triremeLoggersSystem = System{Name: "trireme-loggers", Title: "Trireme, one voter with data, loggers besides",
		Short: "Trireme 1+n", Ours: true, Safe: true, Variants: []Variant{{Name: "default"}},
		Start: triremeStarter(allLoggers, config.DurabilityLog)}
)

// TriremeOf is a Trireme of another shape than those of Systems: so many of its nodes are loggers.
func TriremeOf(loggers int, durability string) System {
	s := triremeSystem
	s.Title = fmt.Sprintf("Trireme, %d loggers, durability = %s", loggers, durability)
	s.Start = triremeStarter(func(int) int { return loggers }, durability)
	return s
}

// How many of the nodes are loggers.
func noLogger(int) int         { return 0 }
func oneLogger(int) int        { return 1 }
func allLoggers(nodes int) int { return nodes - 1 }

const settleLimit = time.Minute

// trireme is a cluster made as users make it.
type trireme struct {
	*demo.Cluster // nil until it is made
	lead          string
	dbs           map[string]*sql.DB     // of data nodes
	disks         map[string]*faultfs.FS // empty without Shape.Disks
	spare         []string               // names of hosts for more nodes
	dir           string                 // holds one directory for each node
	replaced      map[string]string      // roles of members that were removed to be added again
	kept          bool                   // what ends is started again
	watch         *watch
	ether         *ethernet              // nil without Shape.Switch
	serverCPUs    float64                // Shape.ServerCPUs
	budgets       map[string]*wan.Budget // of mysqld alone, by node
	asked         *api.Client            // of the first node
	hosts         *wan.Hosts
	binary        string // trireme's own program
	mysqld        string
}

func triremeStarter(loggers func(nodes int) int, durability string) func(context.Context, *Lab, Shape) (Running,
	error) {
	return func(ctx context.Context, l *Lab, s Shape) (Running, error) {
		return startTrireme(ctx, l, s, loggers(s.nodes()), durability)
	}
}

func startTrireme(ctx context.Context, l *Lab, s Shape, loggers int, durability string) (_ *trireme, err error) {
	if l.Binary == "" {
		if l.Binary, err = FindTrireme(); err != nil {
			return nil, err
		}
	}
	o := SharedOptions()
	maps.Copy(o, s.Variant.Options)
	maps.Copy(o, s.Options)
	t := &trireme{dbs: map[string]*sql.DB{}, disks: map[string]*faultfs.FS{}, dir: s.Dir, replaced: map[string]string{},
		watch: newWatch(), binary: l.Binary, mysqld: l.MySQL, serverCPUs: s.ServerCPUs, budgets: map[string]*wan.Budget{}}
	for i := range s.Spare {
		t.spare = append(t.spare, "n"+strconv.Itoa(s.nodes()+i+1))
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, t.Stop())
		}
	}()
	if s.Disks {
		if err := t.insertDisks(ctx, s, loggers); err != nil {
			return nil, err
		}
	}
	template, err := demo.NewTemplate(ctx, l.MySQL)
	if err != nil {
		return nil, err
	}
	t.hosts = &wan.Hosts{Cluster: "demo", Topology: s.Topology, Spare: t.spare, CPUs: s.CPUs}
	base, err := demo.FreePortBase(s.nodes() + s.Learners)
	if err != nil {
		return nil, err
	}
	t.Cluster, err = demo.Create(ctx, demo.Options{Template: template, Filled: t.syncDisk, Nodes: s.nodes() - loggers,
		Loggers: loggers, Learners: s.Learners, Dir: s.Dir, PortBase: base,
		MySQL: l.MySQL, Binary: l.Binary, MySQLOptions: o, Hosts: t.hosts, CredentialDir: s.Dir, Tune: func(n *config.Node) {
			n.MySQL.Durability = durability
			if s.Switch {
				onEthernet(n)
			}
			if s.Tune != nil {
				s.Tune(n)
			}
		}})
	if err != nil {
		return nil, err
	}
	t.asked = t.Client(t.Nodes()[0])
	if s.Switch {
		if t.ether, err = newEthernet(t); err != nil {
			return nil, err
		}
	}
	for _, n := range t.DataNodes() {
		login := t.Direct(n)
		login.StatementTimeout = statementLimit
		if t.dbs[n.Name], err = login.Open(""); err != nil {
			return nil, err
		}
	}
	if err := t.Settle(ctx); err != nil {
		return nil, err
	}
	_, err = t.DB(t.lead).ExecContext(ctx, "CREATE DATABASE "+Database)
	return t, err
}

// syncDisk of a node, if it has one.
func (t *trireme) syncDisk(n *demo.Node) error {
	if d := t.disks[n.Name]; d != nil {
		return d.Sync()
	}
	return nil
}

// insertDisks where demo.Create will put the nodes' directories: it takes empty ones.
func (t *trireme) insertDisks(ctx context.Context, s Shape, loggers int) (err error) {
	for i := range s.nodes() + s.Learners {
		name := "n" + strconv.Itoa(i+1)
		switch data := s.nodes() - loggers; {
		case i >= s.nodes():
			name = "r" + strconv.Itoa(i-s.nodes()+1)
		case i >= data:
			name = "l" + strconv.Itoa(i-data+1)
		}
		if t.disks[name], err = s.newDisk(ctx, filepath.Join(s.Dir, name), i); err != nil {
			delete(t.disks, name)
			return err
		}
	}
	return nil
}

// Targets: the router of the leader's own node stands for all; those of other nodes add a hop between hosts.
func (t *trireme) Targets(v Via) ([]Target, error) {
	n, s := t.Node(t.lead), t.State()
	switch v {
	case Direct:
		return []Target{{nil, t.lead, n.Host, n.Ports.MySQL, s.User, s.Password}}, nil
	case Router:
		return []Target{{nil, t.lead, n.Host, n.Ports.RW, s.User, s.Password}}, nil
	}
	if t.ether == nil {
		return nil,
			fmt.Errorf("%w: the emulated hosts are joined by TUN devices, which know no ARP; a virtual address needs Ethernet",
				ErrNotHere)
	}
	addr := virtual
	if v == Switch {
		addr = t.ether.addrs[t.lead]
	}
	return []Target{{t.ether.client, t.lead, addr.String(), n.Ports.MySQL, s.User, s.Password}}, nil
}

func (t *trireme) Hosts() []HostParts {
	var out []HostParts
	for _, n := range t.Nodes() {
		h := HostParts{Name: n.Name, MySQL: n.MySQLPID(), Daemon: n.DaemonPID(), Leader: n.Name == t.lead,
			Budget: t.hosts.Budget(n.Name)}
		if guard := n.GuardPID(); guard != 0 {
			h.Extra = append(h.Extra, guard)
		}
		if h.Leader {
			out = append([]HostParts{h}, out...)
		} else {
			out = append(out, h)
		}
	}
	return out
}

func (t *trireme) DB(host string) *sql.DB { return t.dbs[host] }

// Settle waits until all members are healthy, and moves leadership to the first node, as it is with other systems:
// where the leader stands among the sites of a topology matters.
func (t *trireme) Settle(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, settleLimit)
	defer cancel()
	v, err := t.WaitHealthy(ctx)
	if err != nil {
		return err
	}
	if first := t.Nodes()[0].Name; v.Leader != first {
		if _, err := t.Switchover(ctx, first); err != nil {
			return fmt.Errorf("leadership to %s: %w", first, err)
		}
		if v, err = t.WaitHealthy(ctx); err != nil {
			return err
		}
	}
	t.lead = v.Leader
	if err := t.limitServers(); err != nil {
		return err
	}
	if t.ether == nil {
		return nil
	}
	return t.holdsVirtual(ctx)
}

// limitServers puts each mysqld under a budget of its own, where it is asked for. A daemon starts its mysqld itself, so
// it is moved.
func (t *trireme) limitServers() error {
	if t.serverCPUs == 0 {
		return nil
	}
	for _, n := range t.DataNodes() {
		b := t.budgets[n.Name]
		if b == nil {
			var err error
			if b, err = wan.NewBudget("server-"+n.Name, t.serverCPUs); err != nil {
				return err
			}
			t.budgets[n.Name] = b
		}
		pid := n.MySQLPID()
		if pid == 0 { // which would mean this process
			return fmt.Errorf("CPU budget of %s's mysqld: it does not run", n.Name)
		}
		if err := b.Add(pid); err != nil {
			return fmt.Errorf("CPU budget of %s's mysqld: %w", n.Name, err)
		}
	}
	return nil
}

func (t *trireme) Backlog(ctx context.Context) (int64, error) {
	var replicas []*sql.DB
	for name, db := range t.dbs {
		if name != t.lead {
			replicas = append(replicas, db)
		}
	}
	return behindGTID(ctx, []*sql.DB{t.dbs[t.lead]}, replicas)
}

func (t *trireme) Disk(host string) *faultfs.FS { return t.disks[host] }

func (t *trireme) Network() *wan.Net { return t.hosts.Network() }

func (t *trireme) Endpoints() ([]verify.Endpoint, error) { return verify.Endpoints(t) }

func (t *trireme) Stop() error {
	for _, db := range t.dbs {
		db.Close()
	}
	if t.asked != nil {
		t.asked.Close()
	}
	if t.Cluster != nil {
		t.Close()
	}
	var errs []error
	if t.ether != nil {
		errs = append(errs, t.ether.close())
	}
	for _, b := range t.budgets {
		errs = append(errs, b.Close())
	}
	for _, d := range t.disks {
		errs = append(errs, d.Close())
	}
	return errors.Join(errs...)
}
