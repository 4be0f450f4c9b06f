package rivals

import (
	"context"
	"database/sql"
	"fmt"
)

// Pausable is a running system of which one replica can be held up while the others go on, so that a backlog gathers
// for it. The replica that takes writes cannot be held up.
type Pausable interface {
	// StopReplica keeps a replica from applying. Where the server can, only its applier stops, and it goes on
	// receiving; otherwise its host is shut down.
	StopReplica(ctx context.Context, host string) error
	// StartReplica undoes StopReplica. It does not wait until the replica is up.
	StartReplica(ctx context.Context, host string) error
}

func (r *replication) StopReplica(ctx context.Context, host string) error {
	return execOn(ctx, r.servers[1:], host, "STOP REPLICA SQL_THREAD")
}

func (r *replication) StartReplica(ctx context.Context, host string) error {
	return execOn(ctx, r.servers[1:], host, "START REPLICA SQL_THREAD")
}

func execOn(ctx context.Context, replicas []*server, host, statement string) error {
	if s := serverOn(replicas, host); s != nil {
		return s.exec(ctx, statement)
	}
	return fmt.Errorf("%s is not a replica", host)
}

// StopReplica ends the daemon, and mysqld with it: the daemon of a node that runs keeps its applier running.
func (t *trireme) StopReplica(_ context.Context, host string) error {
	n := t.Node(host)
	if n == nil || host == t.lead {
		return fmt.Errorf("%s is not a replica", host)
	}
	if !t.StopDaemon(n) {
		return fmt.Errorf("the daemon of %s did not end when told to", host)
	}
	return nil
}

func (t *trireme) StartReplica(_ context.Context, host string) error {
	n := t.Node(host)
	if n == nil {
		return fmt.Errorf("there is no node %s", host)
	}
	return t.Start(n)
}

// StopReplica takes the member out of the group: its applier alone cannot be stopped (error 3139).
func (m *mgr) StopReplica(ctx context.Context, host string) error {
	return execOn(ctx, m.servers[len(m.primaries()):], host, "STOP GROUP_REPLICATION")
}

// StartReplica lets the member enter again; it fetches what it missed from another one (distributed recovery).
func (m *mgr) StartReplica(ctx context.Context, host string) error {
	return execOn(ctx, m.servers[len(m.primaries()):], host, "START GROUP_REPLICATION")
}

// Lockable is a running system on whose servers a session may hold FLUSH TABLES WITH READ LOCK, which applications'
// accounts may not in all.
type Lockable interface {
	// Locker is a pool of such sessions on one server, the caller's to close.
	Locker(host string) (*sql.DB, error)
}

// Locker is Trireme's own administrator.
func (t *trireme) Locker(host string) (*sql.DB, error) {
	n := t.Node(host)
	if n == nil {
		return nil, fmt.Errorf("there is no node %s", host)
	}
	return t.Admin(n)
}
