package robustness

import (
	"context"
	"database/sql"
	"fmt"
	"testing"
	"time"

	"trireme/internal/api"
	"trireme/internal/mysql/gtid"
	"trireme/internal/ops/demo"
)

// TestOutcome kills the leader's daemon, and mysqld with it, between a commit and its answer. What both survivors say
// became of it is what became of it, whether it had reached the log or not, compressed or not.
func TestOutcome(t *testing.T) {
	t.Parallel()
	c := leaseTagged(t)
	ctx := t.Context()
	c.sql(c.healthy(), func(conn *sql.Conn) {
		for _, q := range []string{"CREATE DATABASE outcome", "CREATE TABLE outcome.t (name VARCHAR(40) PRIMARY KEY)"} {
			_, err := conn.ExecContext(ctx, q)
			must(t, err)
		}
	})
	for _, k := range []struct {
		point string
		setup string
		last  string // the statement under way
		want  api.OutcomeResult
	}{
		{point: "source.before-propose", last: "INSERT INTO outcome.t VALUES ('%s')", want: api.NotCommitted},
		{point: "ack.before", setup: "SET SESSION binlog_transaction_compression = ON",
			last: "INSERT INTO outcome.t VALUES ('%s')", want: api.Committed},
		{point: "source.after-propose", last: "COMMIT"},
	} {
		t.Run(k.point, func(t *testing.T) {
			sub := &cluster{Cluster: c.Cluster, t: t}
			sub.loseAnswer(k.point, k.setup, k.last, k.want)
		})
	}
}

// sql runs f on a session of a node's mysqld.
func (c *cluster) sql(n *demo.Node, f func(*sql.Conn)) {
	c.t.Helper()
	db, err := c.Admin(n)
	must(c.t, err)
	defer db.Close()
	conn, err := db.Conn(c.t.Context())
	must(c.t, err)
	defer conn.Close()
	f(conn)
}

// loseAnswer kills the leader at a point of a commit, and compares what is said of it with what is there. want may be
// empty: either.
func (c *cluster) loseAnswer(point, setup, last string, want api.OutcomeResult) {
	c.t.Helper()
	ctx := c.t.Context()
	leader := c.healthy()
	name := point
	var q api.OutcomeQuery
	var broke time.Time
	c.sql(leader, func(conn *sql.Conn) {
		q = c.question(leader, conn)
		// One commit of this session that the index does not cover, and that was answered.
		for _, s := range []string{setup, fmt.Sprintf("INSERT INTO outcome.t VALUES ('%s, before')", name)} {
			if s != "" {
				_, err := conn.ExecContext(ctx, s)
				must(c.t, err)
			}
		}
		q.After = c.lastGTID(conn)
		if last == "COMMIT" {
			for _, s := range []string{"BEGIN", fmt.Sprintf("INSERT INTO outcome.t VALUES ('%s')", name)} {
				_, err := conn.ExecContext(ctx, s)
				must(c.t, err)
			}
		} else {
			last = fmt.Sprintf(last, name)
		}
		c.command(leader, "arm "+point+"=kill@1")
		if _, err := conn.ExecContext(ctx, last); err == nil {
			c.t.Fatalf("%q was answered", last)
		}
		broke = time.Now()
	})
	var got api.Outcome
	for i, n := range c.others(leader) {
		o := c.outcome(n, q)
		if i == 0 {
			c.t.Logf("%s: %s, %.0f ms after the connection broke", point, o.Result,
				float64(time.Since(broke))/float64(time.Millisecond))
		} else if o != got {
			c.t.Errorf("%s says %+v, another node %+v", n.Name, o, got)
		}
		got = o
		vague := q
		if vague.After, vague.Sole = "", false; c.outcome(n, vague).Result != api.OutcomeUnknown {
			c.t.Errorf("%s tells the transaction under way from the one before without having been told of that", n.Name)
		}
	}
	c.start(leader)
	now := c.healthy()
	c.sql(now, func(conn *sql.Conn) {
		var there api.OutcomeResult
		var before int
		must(c.t,
			conn.QueryRowContext(ctx,
				"SELECT IF(SUM(name = ?), 'committed', 'not-committed'), SUM(name = CONCAT(?, ', before')) FROM outcome.t", name,
				name).Scan(&there, &before))
		if got.Result != there || want != "" && there != want || before != 1 {
			c.t.Errorf("told %+v; there it is %s, the one before %d times; wanted %s", got, there, before, want)
		}
		var executed bool
		must(c.t, conn.QueryRowContext(ctx, "SELECT GTID_SUBSET(?, @@GLOBAL.gtid_executed)", got.GTID).Scan(&executed))
		if !executed || (got.Result == api.Committed) != (got.GTID != "") {
			c.t.Errorf("told %+v, executed is %t", got, executed)
		}
	})
}

// question is what a router would ask of a session from now on: what it knows of it before the next statement.
func (c *cluster) question(leader *demo.Node, conn *sql.Conn) api.OutcomeQuery {
	c.t.Helper()
	q := api.OutcomeQuery{Node: leader.Name, Sole: true}
	for _, m := range c.view().Members {
		if m.Name == leader.Name {
			q.Epoch = m.MySQL.Epoch
		}
	}
	m, err := c.Client(c.others(leader)[0]).Member(c.t.Context())
	must(c.t, err)
	q.Index = m.Raft.Commit
	must(c.t, conn.QueryRowContext(c.t.Context(), "SELECT CONNECTION_ID()").Scan(&q.Thread))
	return q
}

// lastGTID is that of the last transaction of a server that has no other writer.
func (c *cluster) lastGTID(conn *sql.Conn) string {
	c.t.Helper()
	var server, executed string
	must(c.t, conn.QueryRowContext(c.t.Context(), "SELECT @@server_uuid, @@GLOBAL.gtid_executed").Scan(&server, &executed))
	set, err := gtid.ParseSet(executed)
	must(c.t, err)
	uuid, err := gtid.ParseUUID(server)
	must(c.t, err)
	sid := gtid.SID{UUID: uuid}
	return gtid.GTID{SID: sid, GNO: set.Last(sid)}.String()
}

func (c *cluster) outcome(n *demo.Node, q api.OutcomeQuery) api.Outcome {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), 20*time.Second)
	defer cancel()
	for {
		o, err := c.Client(n).Outcome(ctx, q, 5*time.Second)
		must(c.t, err)
		if o.Result != api.OutcomeUnknown || o.GTID != "" {
			return o
		}
		if ctx.Err() != nil {
			c.t.Fatalf("%s: %+v", n.Name, o)
		}
	}
}
