package rivals

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"time"

	"trireme/internal/base/poll"
)

var (
	standaloneSystem = System{Name: "standalone", Title: "standalone server, double-1", Short: "standalone",
		Variants: []Variant{{Name: "default"}}, Start: startStandalone}
	asyncSystem = System{Name: "async", Title: "asynchronous replication, double-1", Short: "async",
		Variants: applierVariants, Start: func(ctx context.Context, l *Lab, s Shape) (Running, error) {
			return startReplication(ctx, l, s, false)
		}}
	semisyncSystem = System{Name: "semisync", Title: "semi-sync at AFTER_SYNC, one acknowledgement, double-1",
		Short: "semi-sync", Variants: semisyncVariants, Start: func(ctx context.Context, l *Lab, s Shape) (Running, error) {
			return startReplication(ctx, l, s, true)
		}}
)

// applierVariants: MySQL's default number of applier workers, and one that suits many writers better.
var applierVariants = []Variant{
	{Name: "4 appliers", Options: map[string]string{"replica_parallel_workers": "4"}},
	{Name: "64 appliers", Options: map[string]string{"replica_parallel_workers": "64"}, Usual: true},
}

// semisyncVariants: the default, and the fastest form: the two settings that MySQL has for semi-sync, and no binary log
// on the replicas. Such a replica cannot replace the source, because the other replicas could not follow it.
var semisyncVariants = []Variant{
	applierVariants[0],
	{Name: "4 appliers, tuned", Options: semisyncTuned("4")},
	{Name: "64 appliers, tuned", Options: semisyncTuned("64"), Usual: true},
}

func semisyncTuned(workers string) map[string]string {
	return map[string]string{
		"replica_parallel_workers":                      workers,
		"replication_optimize_for_static_plugin_config": "ON",
		"replication_sender_observe_commit_only":        "ON",
		"log_replica_updates":                           "OFF",
	}
}

// semisyncTimeoutMS is long enough never to fall back to asynchronous replication within a run.
const semisyncTimeoutMS = 3600_000

// replication is a source with any number of replicas: none (a standalone server), asynchronous or semi-synchronous
// ones.
type replication struct {
	rival
	semisync bool
}

func startStandalone(ctx context.Context, l *Lab, s Shape) (Running, error) {
	s.Nodes = 1
	return startReplication(ctx, l, s, false)
}

func startReplication(ctx context.Context, l *Lab, s Shape, semisync bool) (_ Running, err error) {
	site, err := l.openSite(ctx, s, s.nodes())
	if err != nil {
		return nil, err
	}
	r := &replication{rival: rival{site: site}, semisync: semisync}
	defer func() {
		if err != nil {
			err = errors.Join(err, r.Stop())
		}
	}()
	o := RivalOptions()
	if semisync {
		o["plugin_load_add"] = "semisync_source.so;semisync_replica.so"
	}
	maps.Copy(o, s.Variant.Options)
	maps.Copy(o, s.Options)
	for i, h := range site.hosts {
		server, err := h.startServer(ctx, i+1, o)
		if err != nil {
			return nil, err
		}
		r.servers = append(r.servers, server)
	}
	source := r.servers[0]
	if err := r.lead(ctx, source); err != nil {
		return nil, err
	}
	for _, replica := range r.servers[1:] {
		if err := r.follow(ctx, replica, source); err != nil {
			return nil, err
		}
	}
	return r, r.Settle(ctx)
}

// lead makes a server the source; it follows no other server.
func (r *replication) lead(ctx context.Context, source *server) error {
	if !r.semisync {
		return nil
	}
	return source.exec(ctx, fmt.Sprintf("SET GLOBAL rpl_semi_sync_source_timeout = %d", semisyncTimeoutMS),
		"SET GLOBAL rpl_semi_sync_source_wait_point = AFTER_SYNC",
		"SET GLOBAL rpl_semi_sync_source_wait_for_replica_count = 1",
		"SET GLOBAL rpl_semi_sync_source_enabled = ON")
}

// follow makes a server a replica, whether it was one already or not.
func (r *replication) follow(ctx context.Context, replica, source *server) error {
	if r.semisync {
		if err := replica.exec(ctx, "SET GLOBAL rpl_semi_sync_replica_enabled = ON"); err != nil {
			return err
		}
	}
	return replica.exec(ctx, "STOP REPLICA", "SET GLOBAL super_read_only = ON",
		fmt.Sprintf(
			"CHANGE REPLICATION SOURCE TO SOURCE_HOST = '%s', SOURCE_PORT = %d, SOURCE_USER = '%s', SOURCE_PASSWORD = '%s', "+
				"SOURCE_AUTO_POSITION = 1, SOURCE_SSL = 0, GET_SOURCE_PUBLIC_KEY = 1, SOURCE_CONNECT_RETRY = 1", source.host.addr,
			source.port, User, Password),
		"START REPLICA")
}

func (r *replication) Targets(v Via) ([]Target, error) {
	if v != Direct {
		return nil, fmt.Errorf("%w: MySQL's replication has neither router nor virtual IP address", ErrNotHere)
	}
	return []Target{r.servers[0].target()}, nil
}

func (r *replication) Hosts() []HostParts { return hostsOf(r.servers, 1) }

// Settle waits until every replica is connected and, with semi-sync, acknowledges.
func (r *replication) Settle(ctx context.Context) error {
	want := len(r.servers) - 1
	return poll.Within(ctx, 30*time.Second, "replication with all replicas", func(ctx context.Context) error {
		for _, s := range r.servers[1:] {
			var connected bool
			if err := s.db.QueryRowContext(ctx,
				"SELECT COUNT(*) = 1 FROM information_schema.processlist WHERE state LIKE 'Waiting for source to send event%'").
				Scan(&connected); err != nil {
				return err
			}
			if !connected {
				return fmt.Errorf("the receiver of %s is not connected", s.host.name)
			}
		}
		if !r.semisync {
			return nil
		}
		clients, err := r.servers[0].status(ctx, "Rpl_semi_sync_source_clients")
		if err != nil {
			return err
		}
		status, err := r.servers[0].status(ctx, "Rpl_semi_sync_source_status")
		if err == nil && (clients != fmt.Sprint(want) || status != "ON") {
			err = fmt.Errorf("semi-sync is %s with %s of %d replicas", status, clients, want)
		}
		return err
	})
}

func (r *replication) Backlog(ctx context.Context) (int64, error) {
	var replicas []*sql.DB
	for _, s := range r.servers[1:] {
		replicas = append(replicas, s.db)
	}
	return behindGTID(ctx, []*sql.DB{r.servers[0].db}, replicas)
}
