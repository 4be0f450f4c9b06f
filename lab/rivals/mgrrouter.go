package rivals

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	"trireme/internal/base/poll"
	"trireme/internal/mysql/mysqld"
	"trireme/internal/ops/demo"
	"trireme/lab/verify"
)

var mgrRouterSystem = System{Name: "mgr-router", Short: "InnoDB Cluster",
	Title: "InnoDB Cluster: Group Replication, single-primary, group_replication_consistency = BEFORE_ON_PRIMARY_FAILOVER, double-1, " +
		"through a bootstrapped MySQL Router on the client's host; its metadata was made without MySQL Shell",
	Variants: []Variant{
		{Name: "defaults"},
		{Name: "4 appliers, TLS left to clients", Options: mgrTuned("4", "OFF"), Router: routerPassthrough},
		{Name: "64 appliers, TLS left to clients", Options: mgrTuned("64", "OFF"), Router: routerPassthrough, Usual: true},
	},
	Missing: func(*Lab) error {
		_, err := findRouter()
		return err
	},
	Start: func(ctx context.Context, l *Lab, s Shape) (Running, error) {
		c, err := startInnoDBCluster(ctx, l, s)
		if err != nil {
			return nil, err
		}
		return c, nil
	},
}

// routerPassthrough spares the router, and its link to the server, the TLS that it speaks by default even when the
// client does not. Only on the port for writes: that which splits reads from writes cannot do without.
var routerPassthrough = []string{"--conf-set-option=routing:bootstrap_rw.client_ssl_mode=PASSTHROUGH",
	"--conf-set-option=routing:bootstrap_rw.server_ssl_mode=AS_CLIENT",
	"--conf-set-option=routing:bootstrap_rw.router_require_enforce=0"}

// routerPorts: those of a bootstrapped router that count from its base. The first takes writes, the fifth splits reads
// from writes.
const routerPorts = 5

const clientHost = "client" // where the router runs

// innodbCluster is a group with the metadata by which MySQL Router knows it, and a router that was bootstrapped from
// it.
//
// The metadata has the tables that Router 9.7 reads and writes (metadata version 2.0.0: no cluster sets, no read
// replicas), because Debian has no MySQL Shell, which would make more of them. Two more things differ from a cluster
// that the Shell makes: members talk without TLS, as all systems here do, and through the plugin's own communication
// stack (group_replication_communication_stack = XCOM, the server's default).
type innodbCluster struct {
	*mgr
	router *demo.Process
	port   int // for writes
}

func startInnoDBCluster(ctx context.Context, l *Lab, s Shape) (_ *innodbCluster, err error) {
	program, err := findRouter()
	if err != nil {
		return nil, err
	}
	group, err := startMGR(ctx, l, s, mgrSetup{consistency: "BEFORE_ON_PRIMARY_FAILOVER"})
	if err != nil {
		return nil, err
	}
	c := &innodbCluster{mgr: group, port: ports.take(routerPorts)}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.Stop())
		}
	}()
	if err := group.servers[0].exec(ctx, clusterMetadata...); err != nil {
		return nil, fmt.Errorf("metadata of the cluster: %w", err)
	}
	dir := filepath.Join(s.Dir, "router")
	if err := c.bootstrap(ctx, program, dir, s.Variant.Router); err != nil {
		return nil, err
	}
	c.router, err = demo.StartProcess(demo.Command{Path: program,
		Args: []string{"-c", filepath.Join(dir, "mysqlrouter.conf")}, LogFile: dir + ".log"})
	if err != nil {
		return nil, err
	}
	return c, c.Settle(ctx)
}

// findRouter looks where scripts/mysql-router.sh does, the program that was fetched before PATH.
func findRouter() (string, error) {
	const advice = "run scripts/mysql-router.sh, or name one with MYSQLROUTER=/path/to/mysqlrouter"
	if named := os.Getenv("MYSQLROUTER"); named != "" {
		path, err := exec.LookPath(named)
		if err != nil {
			return "", fmt.Errorf("%w: MYSQLROUTER: %w; %s", ErrNotHere, err, advice)
		}
		return filepath.Abs(path)
	}
	for _, p := range []string{filepath.Join(mysqld.CacheDir(), "mysql-router-"+mysqld.TestedSeries, "bin", "mysqlrouter"),
		"mysqlrouter"} {
		if path, err := exec.LookPath(p); err == nil {
			return filepath.Abs(path)
		}
	}
	return "", fmt.Errorf("%w: MySQL Router is missing; %s", ErrNotHere, advice)
}

// clusterMetadata are the statements that make what MySQL Router asks a cluster for. A view may not name a variable,
// hence the function.
var clusterMetadata = []string{
	"CREATE DATABASE mysql_innodb_cluster_metadata",
	"CREATE VIEW mysql_innodb_cluster_metadata.schema_version AS SELECT 2 AS major, 0 AS minor, 0 AS patch",
	"CREATE TABLE mysql_innodb_cluster_metadata.v2_gr_clusters (cluster_id CHAR(36) CHARACTER SET ascii PRIMARY KEY, " +
		"cluster_name VARCHAR(63), group_name CHAR(36) CHARACTER SET ascii, router_options JSON)",
	"CREATE TABLE mysql_innodb_cluster_metadata.v2_instances (instance_id INT PRIMARY KEY, cluster_id CHAR(36) CHARACTER SET ascii, " +
		"mysql_server_uuid CHAR(36) CHARACTER SET ascii, label VARCHAR(265), address VARCHAR(265), endpoint VARCHAR(265), " +
		"xendpoint VARCHAR(265), attributes JSON)",
	"CREATE FUNCTION mysql_innodb_cluster_metadata.this_server() RETURNS CHAR(36) CHARACTER SET ascii READS SQL DATA RETURN @@GLOBAL.server_uuid",
	"CREATE VIEW mysql_innodb_cluster_metadata.v2_this_instance AS SELECT instance_id, cluster_id, 'gr' AS cluster_type " +
		"FROM mysql_innodb_cluster_metadata.v2_instances WHERE mysql_server_uuid = mysql_innodb_cluster_metadata.this_server()",
	"CREATE TABLE mysql_innodb_cluster_metadata.v2_routers (router_id INT AUTO_INCREMENT PRIMARY KEY, router_name VARCHAR(265), " +
		"product_name VARCHAR(128), address VARCHAR(256), version VARCHAR(12), last_check_in TIMESTAMP NULL, attributes JSON, options JSON, " +
		"cluster_id CHAR(36) CHARACTER SET ascii)",
	// rights on it are granted to the router
	"CREATE TABLE mysql_innodb_cluster_metadata.routers (router_id INT PRIMARY KEY)",
	"INSERT INTO mysql_innodb_cluster_metadata.v2_gr_clusters VALUES ('1', 'lab', @@GLOBAL.group_replication_group_name, NULL)",
	"INSERT INTO mysql_innodb_cluster_metadata.v2_instances SELECT ROW_NUMBER() OVER (), '1', member_id, a, a, a, NULL, '{}' " +
		"FROM (SELECT member_id, CONCAT(member_host, ':', member_port) AS a FROM performance_schema.replication_group_members) AS m",
}

// bootstrap lets the router make its account and configuration, as its users do.
func (c *innodbCluster) bootstrap(ctx context.Context, program, dir string, options []string) error {
	primary := url.URL{User: url.UserPassword(User, Password), Host: c.servers[0].addr()}
	args := append([]string{"--bootstrap=" + primary.String()[len("//"):], "--directory=" + dir, "--conf-base-port=" +
		strconv.Itoa(c.port),
		"--conf-bind-address=127.0.0.1", "--report-host=127.0.0.1", "--conf-skip-x-protocol", "--disable-rest"}, asRoot()...)
	logFile := dir + "-bootstrap.log"
	p, err := demo.StartProcess(demo.Command{Path: program, Args: append(args, options...), LogFile: logFile})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	select {
	case <-p.Done():
		err = p.Err()
	case <-ctx.Done():
		p.Kill()
		err = ctx.Err()
	}
	if err != nil {
		log, _ := os.ReadFile(logFile)
		return fmt.Errorf("mysqlrouter --bootstrap: %w: %s", err, lastLines(string(log), 5))
	}
	return nil
}

func (c *innodbCluster) Targets(v Via) ([]Target, error) {
	t, err := c.mgr.Targets(Direct)
	switch {
	case err != nil || v == Direct:
		return t, err
	case v == Router:
		t[0].Host, t[0].Port = "127.0.0.1", c.port
		return t, nil
	}
	return nil, fmt.Errorf("%w: InnoDB Cluster has no virtual IP address", ErrNotHere)
}

func (c *innodbCluster) Hosts() []HostParts {
	return append(c.mgr.Hosts(), HostParts{Name: clientHost, Extra: []int{c.router.PID}})
}

// Settle also waits until the router leads to the primary.
func (c *innodbCluster) Settle(ctx context.Context) error {
	if err := c.mgr.Settle(ctx); err != nil {
		return err
	}
	addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(c.port))
	db, err := verify.Login{Addr: verify.Fixed(addr), User: User, Password: Password,
		StatementTimeout: 5 * time.Second}.Open("")
	if err != nil {
		return err
	}
	defer db.Close()
	return poll.Within(ctx, settleLimit, "MySQL Router on "+addr, func(ctx context.Context) error {
		if !c.router.Alive() {
			return fmt.Errorf("it has ended: %w", c.router.Err())
		}
		var uuid, primary string
		if err := db.QueryRowContext(ctx, "SELECT @@GLOBAL.server_uuid").Scan(&uuid); err != nil {
			return err
		}
		if err := c.servers[0].db.QueryRowContext(ctx, "SELECT @@GLOBAL.server_uuid").Scan(&primary); err != nil {
			return err
		}
		if uuid != primary {
			return fmt.Errorf("it leads to the server %s, not to the primary %s", uuid, primary)
		}
		return nil
	})
}

func (c *innodbCluster) Stop() error {
	if c.router != nil {
		c.router.Kill()
	}
	return c.mgr.Stop()
}
