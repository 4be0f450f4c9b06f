package rivals

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"

	"trireme/internal/base/poll"
	"trireme/internal/mysql/mysqld"
)

var (
	mgrEventualSystem = System{Name: "mgr-eventual",
		Title: "Group Replication, single-primary, group_replication_consistency = EVENTUAL, double-1", Short: "MGR_1",
		Variants: singlePrimaryVariants, Start: mgrStarter(mgrSetup{consistency: "EVENTUAL"})}
	mgrAfterSystem = System{Name: "mgr-after",
		Title: "Group Replication, single-primary, group_replication_consistency = AFTER, double-1", Short: "MGR_0",
		Safe: true, Variants: singlePrimaryVariants, Start: mgrStarter(mgrSetup{consistency: "AFTER"})}
	mgrMultiSystem = System{Name: "mgr-multi",
		Title: "Group Replication, multi-primary, group_replication_consistency = EVENTUAL, double-1", Short: "MGR multi",
		Variants: multiPrimaryVariants, Start: mgrStarter(mgrSetup{consistency: "EVENTUAL", multi: true})}
)

// multiPrimaryVariants: as it comes (4 applier workers, flow control), and as it is fastest.
var multiPrimaryVariants = []Variant{
	{Name: "defaults"},
	{Name: "4 appliers", Options: mgrTuned("4", "OFF")},
	{Name: "64 appliers", Options: mgrTuned("64", "OFF"), Usual: true},
}

// singlePrimaryVariants: a single consensus leader is only for groups with a single primary.
var singlePrimaryVariants = append(multiPrimaryVariants[:len(multiPrimaryVariants):len(multiPrimaryVariants)],
	Variant{Name: "4 appliers, single leader", Options: mgrTuned("4", "ON")},
	Variant{Name: "64 appliers, single leader", Options: mgrTuned("64", "ON")},
)

func mgrTuned(workers, singleLeader string) map[string]string {
	return map[string]string{
		"replica_parallel_workers":                      workers,
		"group_replication_flow_control_mode":           "DISABLED",
		"replication_optimize_for_static_plugin_config": "ON",
		mgrSingleLeader:                                 singleLeader,
	}
}

const (
	mgrPort         = 33061 // between members
	mgrMaxNodes     = 9     // the plugin's limit
	mgrStartOnBoot  = "group_replication_start_on_boot"
	mgrSingleLeader = "group_replication_paxos_single_leader"
)

// mgrSetup is what tells one kind of group from another.
type mgrSetup struct {
	consistency string
	multi       bool // every member takes writes
}

// options of all members; what is not named has its default.
func (s mgrSetup) options(seeds string) map[string]string {
	o := RivalOptions()
	maps.Copy(o, map[string]string{
		"plugin_load_add":               "group_replication.so",
		"group_replication_group_name":  "7d2f5b1e-6c3a-4c59-9d0e-1a2b3c4d5e6f",
		"group_replication_group_seeds": seeds,
		"group_replication_consistency": s.consistency,
		// the default allows private networks only, and lab/wan's is not one
		"group_replication_ip_allowlist": "127.0.0.0/8,198.18.0.0/15",
		mgrStartOnBoot:                   "OFF",
		// Without TLS the password of the recovery channel is encrypted with the donor's key.
		"group_replication_recovery_get_public_key": "ON",
	})
	if s.multi {
		o["group_replication_single_primary_mode"] = "OFF"
		o["group_replication_enforce_update_everywhere_checks"] = "ON"
	}
	return o
}

// mgr is MySQL Group Replication. The first server is the primary, or all are.
type mgr struct {
	rival
	multi   bool
	options map[string]string // of every member
}

func mgrStarter(setup mgrSetup) func(context.Context, *Lab, Shape) (Running, error) {
	return func(ctx context.Context, l *Lab, s Shape) (Running, error) {
		m, err := startMGR(ctx, l, s, setup)
		if err != nil {
			return nil, err
		}
		return m, nil
	}
}

func startMGR(ctx context.Context, l *Lab, s Shape, setup mgrSetup) (_ *mgr, err error) {
	if s.nodes() > mgrMaxNodes {
		return nil, fmt.Errorf("%w: a group has at most %d members, not %d", ErrNotHere, mgrMaxNodes, s.nodes())
	}
	site, err := l.openSite(ctx, s, s.nodes())
	if err != nil {
		return nil, err
	}
	m := &mgr{rival: rival{site: site}, multi: setup.multi}
	defer func() {
		if err != nil {
			err = errors.Join(err, m.Stop())
		}
	}()
	var members []string // their addresses for each other
	for _, h := range site.hosts {
		members = append(members, fmt.Sprintf("%s:%d", h.addr, h.port(mgrPort)))
	}
	o := setup.options(strings.Join(members, ","))
	maps.Copy(o, s.Variant.Options)
	maps.Copy(o, s.Options)
	m.options = o
	for i, h := range site.hosts {
		o["group_replication_local_address"] = members[i]
		server, err := h.startServer(ctx, i+1, o)
		if err != nil {
			return nil, err
		}
		m.servers = append(m.servers, server)
		if err := server.join(ctx, i == 0); err != nil {
			return nil, err
		}
	}
	if err := m.Settle(ctx); err != nil {
		return nil, err
	}
	return m, m.checkProtocol(ctx)
}

// join starts Group Replication on a server, which founds the group or enters it. From then on it enters by itself when
// it is restarted.
func (s *server) join(ctx context.Context, found bool) error {
	err := s.exec(ctx,
		fmt.Sprintf(
			"CHANGE REPLICATION SOURCE TO SOURCE_USER = '%s', SOURCE_PASSWORD = '%s' FOR CHANNEL 'group_replication_recovery'",
			User, Password))
	if err != nil {
		return err
	}
	start := []string{"START GROUP_REPLICATION"}
	if found {
		start = []string{"SET GLOBAL group_replication_bootstrap_group = ON", start[0],
			"SET GLOBAL group_replication_bootstrap_group = OFF"}
	}
	if err := s.exec(ctx, start...); err != nil {
		return fmt.Errorf("%w; its log: %s", err, s.lastLog())
	}
	s.setOption(mgrStartOnBoot, "ON")
	return nil
}

// singleLeaderProtocol is the first version of the group's protocol that knows a single consensus leader.
var singleLeaderProtocol = mysqld.Version{Major: 8, Minor: 0, Patch: 27}

// checkProtocol makes sure that a single consensus leader, if it is asked for, is in force: a group with an older
// protocol ignores the setting silently. The table that names the leaders is empty while performance_schema is off.
func (m *mgr) checkProtocol(ctx context.Context) error {
	var single bool
	var protocol string
	err := m.servers[0].db.QueryRowContext(ctx, "SELECT @@GLOBAL."+mgrSingleLeader+
		", group_replication_get_communication_protocol()").Scan(&single, &protocol)
	if err != nil {
		return fmt.Errorf("protocol of the group: %w", err)
	}
	v, err := mysqld.ParseVersion(protocol)
	if err == nil && single && !v.AtLeast(singleLeaderProtocol.Major, singleLeaderProtocol.Minor,
		singleLeaderProtocol.Patch) {
		err = fmt.Errorf("the group's protocol is %s: a single consensus leader needs %s", v, singleLeaderProtocol)
	}
	return err
}

// Targets: every member of a multi-primary group takes writes.
func (m *mgr) Targets(v Via) ([]Target, error) {
	if v != Direct {
		return nil,
			fmt.Errorf("%w: Group Replication alone has neither router nor virtual IP address; mgr-router has a router",
				ErrNotHere)
	}
	var out []Target
	for _, s := range m.primaries() {
		out = append(out, s.target())
	}
	return out, nil
}

func (m *mgr) primaries() []*server {
	if m.multi {
		return m.servers
	}
	return m.servers[:1]
}

func (m *mgr) Hosts() []HostParts { return hostsOf(m.servers, len(m.primaries())) }

// Settle waits until every member sees all ONLINE, and makes the first one the primary.
func (m *mgr) Settle(ctx context.Context) error {
	if err := m.waitOnline(ctx, nil); err != nil || m.multi {
		return err
	}
	first := m.servers[0]
	view, err := first.groupView(ctx)
	if err != nil || view.primary == first.addr() {
		return err
	}
	if err := first.exec(ctx, "DO group_replication_set_as_primary(@@GLOBAL.server_uuid)"); err != nil {
		return err
	}
	return m.waitOnline(ctx, first)
}

// waitOnline waits until every member sees all ONLINE and, if it is given, the primary.
func (m *mgr) waitOnline(ctx context.Context, primary *server) error {
	return poll.Within(ctx, settleLimit, "the group with all members", func(ctx context.Context) error {
		for _, s := range m.servers {
			v, err := s.groupView(ctx)
			switch {
			case err != nil:
				return err
			case v.online != len(m.servers):
				return fmt.Errorf("%s sees %d of %d members ONLINE", s.host.name, v.online, len(m.servers))
			case primary != nil && v.primary != primary.addr():
				return fmt.Errorf("%s sees the primary at %s, not %s", s.host.name, v.primary, primary.addr())
			}
		}
		return nil
	})
}

// groupView is the group as one member sees it.
type groupView struct {
	online  int
	primary string // address of a primary; empty: no primary
}

func (s *server) groupView(ctx context.Context) (v groupView, err error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	err = s.db.QueryRowContext(ctx, "SELECT COALESCE(SUM(member_state = 'ONLINE'), 0), "+
		"COALESCE(MAX(IF(member_role = 'PRIMARY', CONCAT(member_host, ':', member_port), NULL)), '') "+
		"FROM performance_schema.replication_group_members").Scan(&v.online, &v.primary)
	if err != nil {
		err = fmt.Errorf("%s: members of the group: %w", s.host.name, err)
	}
	return v, err
}

// Backlog counts what any member has executed and the slowest one has not.
func (m *mgr) Backlog(ctx context.Context) (int64, error) {
	var all []*sql.DB
	for _, s := range m.servers {
		all = append(all, s.db)
	}
	return behindGTID(ctx, all[:len(m.primaries())], all)
}
