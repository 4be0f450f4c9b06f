package mysqld

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Channel is where this follower's receiver gets the binary log from: the daemon's feed.
type Channel struct {
	Host      string // an address of this host
	Port      int
	Account   Account       // as the feed knows it
	Heartbeat time.Duration // silence after which the feed sends a sign of life; 0: 5 s
}

const defaultHeartbeat = 5 * time.Second

// ConfigureChannel points the receiver at the feed. Replication must be stopped. Relay logs of earlier are discarded:
// the feed brings again what was not executed.
func (a *Admin) ConfigureChannel(ctx context.Context, ch Channel) error {
	hb := ch.Heartbeat
	if hb == 0 {
		hb = defaultHeartbeat
	}
	q := []string{
		"SOURCE_HOST=" + quote(ch.Host),
		"SOURCE_PORT=" + strconv.Itoa(ch.Port),
		"SOURCE_USER=" + quote(ch.Account.User),
		"SOURCE_PASSWORD=" + quote(ch.Account.Password),
		"SOURCE_AUTO_POSITION=1",
		"SOURCE_SSL=0", // both ends are on this host
		"GET_SOURCE_PUBLIC_KEY=1",
		"SOURCE_CONNECT_RETRY=1",
		"SOURCE_RETRY_COUNT=0", // for ever: the daemon is there or we are dead
		"SOURCE_HEARTBEAT_PERIOD=" + strconv.FormatFloat(hb.Seconds(), 'f', 3, 64),
	}
	return limit(ctx, slowLimit, "configure replication", func(ctx context.Context) error {
		// A channel whose relay logs are gone cannot be changed, only made again.
		if err := a.channel.exec(ctx, "RESET REPLICA ALL"); err != nil {
			return err
		}
		return a.channel.exec(ctx, "CHANGE REPLICATION SOURCE TO "+strings.Join(q, ", "))
	})
}

// StartReplica starts receiver and appliers.
func (a *Admin) StartReplica(ctx context.Context) error { return a.replication(ctx, "START REPLICA") }

// StopReplica stops both. With part of a transaction in the relay log it takes 60 s, and fails here with ErrTimeout.
func (a *Admin) StopReplica(ctx context.Context) error { return a.replication(ctx, "STOP REPLICA") }

// StopIOThread stops the receiver; the appliers finish what was received.
func (a *Admin) StopIOThread(ctx context.Context) error {
	return a.replication(ctx, "STOP REPLICA IO_THREAD")
}

// StopSQLThread stops the appliers.
func (a *Admin) StopSQLThread(ctx context.Context) error {
	return a.replication(ctx, "STOP REPLICA SQL_THREAD")
}

func (a *Admin) replication(ctx context.Context, q string) error {
	return limit(ctx, slowLimit, strings.ToLower(q), func(ctx context.Context) error {
		return a.channel.exec(ctx, q)
	})
}

// ReplicaStatus is the state of the follower's receiver and applier.
type ReplicaStatus struct {
	IORunning  bool   // connected and receiving
	IOState    string // "Yes", "No", "Connecting"
	SQLRunning bool
	IOErrno    int
	IOError    string
	SQLErrno   int
	SQLError   string
	Retrieved  string        // GTID set received in this incarnation
	Lag        time.Duration // by the source's clock; meaningful only with LagKnown
	LagKnown   bool
	RelayBytes uint64 // relay log on disk
}

// ReplicaStatus reads SHOW REPLICA STATUS, which works with performance_schema off too. ErrNoChannel before
// ConfigureChannel. While STOP REPLICA is waiting for its threads, this waits as well.
func (a *Admin) ReplicaStatus(ctx context.Context) (ReplicaStatus, error) {
	var st ReplicaStatus
	err := limit(ctx, quickLimit, "read replication status", func(ctx context.Context) error {
		t, err := a.status.query(ctx, "SHOW REPLICA STATUS")
		if err != nil {
			return err
		}
		if len(t) == 0 {
			return ErrNoChannel
		}
		st, err = parseReplicaStatus(t[0])
		return err
	})
	return st, err
}

// stateNoSpace is what a thread of mysqld's own is in while it sleeps because a disk was full (mysys/errors.cc,
// wait_for_free_space): for a minute, also when there is room again. SHOW REPLICA STATUS does not answer meanwhile.
const stateNoSpace = "Waiting for disk space"

// WaitsForSpace says whether the receiver or the applier sleeps because it met a full disk.
func (a *Admin) WaitsForSpace(ctx context.Context) (waits bool, err error) {
	err = limit(ctx, quickLimit, "look for threads that wait for space", func(ctx context.Context) error {
		t, err := a.status.query(ctx, "SHOW PROCESSLIST")
		for _, r := range t {
			waits = waits || r["user"] == "system user" && r["state"] == stateNoSpace
		}
		return err
	})
	return waits, err
}

func parseReplicaStatus(r map[string]string) (ReplicaStatus, error) {
	st := ReplicaStatus{
		IOState:    r["replica_io_running"],
		IORunning:  r["replica_io_running"] == "Yes",
		SQLRunning: r["replica_sql_running"] == "Yes",
		IOError:    r["last_io_error"],
		SQLError:   r["last_sql_error"],
		Retrieved:  strings.ReplaceAll(r["retrieved_gtid_set"], "\n", ""),
	}
	var err error
	number := func(name string) uint64 {
		n, e := strconv.ParseUint(r[name], 10, 64)
		if e != nil && err == nil {
			err = fmt.Errorf("SHOW REPLICA STATUS: %s: %w", name, e)
		}
		return n
	}
	st.IOErrno, st.SQLErrno = int(number("last_io_errno")), int(number("last_sql_errno"))
	st.RelayBytes = number("relay_log_space")
	if s := r["seconds_behind_source"]; s != "" { // NULL while the applier is stopped
		st.Lag, st.LagKnown = time.Duration(number("seconds_behind_source"))*time.Second, true
	}
	return st, err
}
