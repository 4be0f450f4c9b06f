package rivals

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"trireme/internal/demo"
	"trireme/lab/faultfs"
	"trireme/lab/wan"
)

var galeraSystem = System{Name: "galera", Title: "MariaDB Galera, writes to one node, flushed at each commit", Short: "Galera", Safe: true,
	Variants: []Variant{
		{Name: "defaults"}, // one applier, flow control at 16 write sets
		{Name: "4 appliers", Options: map[string]string{galeraAppliers: "4"}},
		{Name: "64 appliers", Options: map[string]string{galeraAppliers: "64"}},
		{Name: "64 appliers, late flow control", Options: map[string]string{galeraAppliers: "64", galeraProvider: "gcs.fc_limit=1024"}, Usual: true},
	},
	Missing: missingMariaDB,
	Start:   startGalera}

// galeraRelaxedSystem is Galera as it is recommended: the cluster is what keeps transactions, the disk gets them about
// once a second.
var galeraRelaxedSystem = System{Name: "galera-relaxed", Title: "MariaDB Galera, writes to one node, flushed once a second (innodb_flush_log_at_trx_commit = 0)", Short: "Galera relaxed",
	Variants: []Variant{{Name: "64 appliers", Options: map[string]string{galeraAppliers: "64", "innodb_flush_log_at_trx_commit": "0"}}},
	Missing:  missingMariaDB,
	Start:    startGalera}

func missingMariaDB(*Lab) error {
	_, err := findMariaDB()
	return err
}

const (
	galeraAppliers = "wsrep_slave_threads"
	galeraProvider = "wsrep_provider_options"

	galeraPort = 4567 // between nodes
	istPort    = 4568 // of a node that catches up

	galeraGroup = "7d2f5b1e-6c3a-11ef-9d0e-1a2b3c4d5e6f"

	galeraStartLimit = 2 * time.Minute // the nodes find each other only by their retries
)

// galeraOptions of all nodes. There is no binary log, as Galera needs none: the redo log is what is flushed at a
// commit.
func galeraOptions(m mariaDB) map[string]string {
	o := SharedOptions()
	o["innodb_log_file_size"] = o["innodb_redo_log_capacity"]
	for _, unknown := range []string{"innodb_redo_log_capacity", "innodb_log_writer_threads"} {
		delete(o, unknown)
	}
	maps.Copy(o, map[string]string{
		"innodb_flush_log_at_trx_commit": "1",
		"sync_binlog":                    "1", // for options that switch a binary log on
		"binlog_format":                  "ROW",
		"default_storage_engine":         "InnoDB",
		"innodb_autoinc_lock_mode":       "2",
		"wsrep_on":                       "ON",
		"wsrep_provider":                 m.provider,
		"wsrep_cluster_name":             "lab",
	})
	return o
}

// galera is a cluster of MariaDB servers that replicate write sets. All take writes, but clients are sent to the first.
type galera struct {
	site    *site
	servers []*server
	clients moving
}

// startGalera starts nodes that find themselves in the state of a cluster whose power was lost at once, with equal
// data: when all are there they form a primary component, and none has to be copied from another. That spares the
// programs of state snapshot transfers.
func startGalera(ctx context.Context, l *Lab, s Shape) (_ Running, err error) {
	m, err := findMariaDB()
	if err != nil {
		return nil, err
	}
	template, err := mariaTemplate(ctx, m)
	if err != nil {
		return nil, err
	}
	site, err := l.openSite(ctx, s, s.nodes())
	if err != nil {
		return nil, err
	}
	g := &galera{site: site}
	defer func() {
		if err != nil {
			err = errors.Join(err, g.Stop())
		}
	}()
	o := galeraOptions(m)
	maps.Copy(o, s.Variant.Options)
	maps.Copy(o, s.Options)
	var members []string
	for _, h := range site.hosts {
		members = append(members, fmt.Sprintf("%s:%d", h.addr, h.port(galeraPort)))
	}
	o["wsrep_cluster_address"] = "gcomm://" + strings.Join(members, ",")
	for i, h := range site.hosts {
		if err := h.copyData(template); err != nil {
			return nil, err
		}
		if err := writeGaleraState(filepath.Join(h.dir, "data"), i, len(site.hosts)); err != nil {
			return nil, err
		}
		server := &server{host: h, port: h.port(mysqlPort)}
		server.command = demo.Command{Path: m.server, Args: galeraArgs(server, i, members[i], o), LogFile: filepath.Join(h.dir, "output.log")}
		if err := server.launch(); err != nil {
			return nil, err
		}
		g.servers = append(g.servers, server)
	}
	return g, g.wait(ctx, galeraStartLimit)
}

func galeraArgs(s *server, i int, member string, options map[string]string) []string {
	h := s.host
	ist := fmt.Sprintf("%s:%d", h.addr, h.port(istPort))
	provider := []string{"gmcast.listen_addr=tcp://" + member, "ist.recv_addr=" + ist, "ist.recv_bind=" + ist, "socket.ssl=no"}
	args := append([]string{"--no-defaults", "--datadir=" + filepath.Join(h.dir, "data"), "--port=" + strconv.Itoa(s.port), "--bind-address=" + h.addr,
		"--socket=" + filepath.Join(h.dir, "s"), "--pid-file=" + filepath.Join(h.dir, "pid"), "--log-error=" + filepath.Join(h.dir, "error.log"),
		"--server-id=" + strconv.Itoa(i+1), "--wsrep-node-name=" + h.name, "--wsrep-node-address=" + member}, asRoot()...)
	for _, k := range slices.Sorted(maps.Keys(options)) {
		if k == galeraProvider {
			provider = append(provider, options[k])
			continue
		}
		args = append(args, "--"+k+"="+options[k])
	}
	return append(args, "--"+galeraProvider+"="+strings.Join(provider, ";"))
}

// writeGaleraState makes a data directory that of member i of a cluster of n, of which all have the same data and all
// are gone.
func writeGaleraState(data string, i, n int) error {
	id := func(member int) string { return fmt.Sprintf("a0000000-1605-11e4-aa3d-%012x", member+1) }
	view := fmt.Sprintf("my_uuid: %s\n#vwbeg\nview_id: 3 %s 1\nbootstrap: 0\n", id(i), id(0))
	for member := range n {
		view += fmt.Sprintf("member: %s 0\n", id(member))
	}
	state := "# GALERA saved state\nversion: 2.1\nuuid:    " + galeraGroup + "\nseqno:   0\nsafe_to_bootstrap: 0\n"
	return errors.Join(
		os.WriteFile(filepath.Join(data, "gvwstate.dat"), []byte(view+"#vwend\n"), 0o640),
		os.WriteFile(filepath.Join(data, "grastate.dat"), []byte(state), 0o640))
}

func (g *galera) Targets(v Via) ([]Target, error) {
	if v != Direct {
		return nil, fmt.Errorf("%w: Galera has neither router nor virtual IP address", ErrNotHere)
	}
	return []Target{g.servers[0].target()}, nil
}

func (g *galera) Hosts() []HostParts { return hostsOf(g.servers, 1) }

func (g *galera) DB(host string) *sql.DB { return dbOf(g.servers, host) }

// Settle waits until all nodes are in one primary component and synced.
func (g *galera) Settle(ctx context.Context) error { return g.wait(ctx, settleLimit) }

func (g *galera) wait(ctx context.Context, limit time.Duration) error {
	want := map[string]string{"wsrep_cluster_size": strconv.Itoa(len(g.servers)), "wsrep_cluster_status": "Primary", "wsrep_local_state_comment": "Synced", "wsrep_ready": "ON"}
	return poll(ctx, limit, "all nodes of Galera", func(ctx context.Context) error {
		for _, s := range g.servers {
			select {
			case <-s.proc.Done():
				return fmt.Errorf("mariadbd on %s has ended: %s", s.addr(), s.lastLog())
			default:
			}
			for _, name := range slices.Sorted(maps.Keys(want)) {
				value, err := s.status(ctx, name)
				if err == nil && value != want[name] {
					err = fmt.Errorf("%s of %s is %s, not %s", name, s.host.name, value, want[name])
				}
				if err != nil {
					return err
				}
			}
		}
		return nil
	})
}

// Behind counts the write sets between the node that has committed most and the one that has committed least.
func (g *galera) Behind(ctx context.Context) (int64, error) {
	least, most := int64(math.MaxInt64), int64(0)
	for _, s := range g.servers {
		text, err := s.status(ctx, "wsrep_last_committed")
		if err != nil {
			return 0, err
		}
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("wsrep_last_committed of %s: %w", s.host.name, err)
		}
		least, most = min(least, n), max(most, n)
	}
	return most - least, nil
}

func (g *galera) Disk(host string) *faultfs.FS { return g.site.diskOf(host) }

func (g *galera) Network() *wan.Net { return g.site.net }

func (g *galera) Stop() error {
	for _, s := range g.servers {
		s.stop()
	}
	return g.site.close()
}
