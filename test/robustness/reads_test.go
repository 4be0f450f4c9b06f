package robustness

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"trireme/internal/api"
	"trireme/internal/ops/demo"
)

// TestCurrentReads: a follower that has applied a read index taken anywhere shows all that was answered before, one
// that does not progress says so in time, and goes on when it does.
func TestCurrentReads(t *testing.T) {
	t.Parallel()
	c := lease(t)
	leader := c.healthy()
	follower := c.others(leader)[0]
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	took := map[string][]time.Duration{}
	timed := func(what string, f func() error) {
		t.Helper()
		began := time.Now()
		must(t, f())
		took[what] = append(took[what], time.Since(began))
	}
	c.sql(leader, func(conn *sql.Conn) {
		write := func(q string) {
			_, err := conn.ExecContext(ctx, q)
			must(t, err)
		}
		write("CREATE DATABASE IF NOT EXISTS current")
		write("CREATE TABLE IF NOT EXISTS current.t (id INT PRIMARY KEY)")
		write("DELETE FROM current.t")
		c.sql(follower, func(reader *sql.Conn) {
			for id := range 30 {
				timed("a commit", func() error {
					_, err := conn.ExecContext(ctx, "INSERT INTO current.t VALUES (?)", id)
					return err
				})
				asked := c.Nodes()[id%3]
				if id < 20 {
					c.readBehind(ctx, reader, follower, asked, id, timed)
				} else {
					c.readAnywhere(ctx, reader, asked, id, timed)
				}
			}
			c.heldUp(ctx, conn, reader, follower)
		})
	})
	for what, ds := range took {
		slices.Sort(ds)
		t.Logf("%s: median %v, longest %v of %d", what, ds[len(ds)/2].Round(10*time.Microsecond),
			ds[len(ds)-1].Round(10*time.Microsecond), len(ds))
	}
}

// readBehind reads a row that was answered, in one of two ways.
func (c *cluster) readBehind(ctx context.Context, reader *sql.Conn, follower, asked *demo.Node, id int,
	timed func(string, func() error)) {
	c.t.Helper()
	client, here := c.Client(asked), c.Client(follower)
	defer client.Close()
	defer here.Close()
	_, err := client.Member(ctx) // connected
	must(c.t, err)
	_, err = here.Member(ctx)
	must(c.t, err)
	var v api.ReadIndexView
	timed("a read index", func() (err error) {
		v, err = client.ReadIndex(ctx, api.ReadIndexQuery{GTIDs: id%2 == 1})
		return err
	})
	q := api.AppliedQuery{Index: v.Index}
	if id%2 == 1 {
		q = api.AppliedQuery{GTIDs: v.GTIDs}
	}
	timed("applied on a follower", func() error {
		got, err := here.Applied(ctx, q, 10*time.Second)
		if err == nil && got.Index < v.Index {
			err = fmt.Errorf("applied is %d, %d was asked for", got.Index, v.Index)
		}
		return err
	})
	var there int
	must(c.t, reader.QueryRowContext(ctx, "SELECT COUNT(*) FROM current.t WHERE id = ?", id).Scan(&there))
	if there != 1 {
		c.t.Errorf("row %d was answered, and %s does not show it after read index %d of %s", id, follower.Name, v.Index,
			asked.Name)
	}
}

// readAnywhere reads a row after a wait for all nodes.
func (c *cluster) readAnywhere(ctx context.Context, reader *sql.Conn, asked *demo.Node, id int,
	timed func(string, func() error)) {
	c.t.Helper()
	client := c.Client(asked)
	defer client.Close()
	v, err := client.ReadIndex(ctx, api.ReadIndexQuery{})
	must(c.t, err)
	timed("applied everywhere", func() error {
		_, err := client.Applied(ctx, api.AppliedQuery{Index: v.Index, Everywhere: true}, 10*time.Second)
		return err
	})
	var there int
	must(c.t, reader.QueryRowContext(ctx, "SELECT COUNT(*) FROM current.t WHERE id = ?", id).Scan(&there))
	if there != 1 {
		c.t.Errorf("row %d is applied everywhere, and not there", id)
	}
}

// heldUp makes a follower lag by a lock: who waits hears that it is not applied, and later that it is.
func (c *cluster) heldUp(ctx context.Context, conn, reader *sql.Conn, follower *demo.Node) {
	c.t.Helper()
	client := c.Client(follower)
	defer client.Close()
	before, err := client.ReadIndex(ctx, api.ReadIndexQuery{})
	must(c.t, err)
	_, err = reader.ExecContext(ctx, "LOCK TABLES current.t READ")
	must(c.t, err)
	_, err = conn.ExecContext(ctx, "INSERT INTO current.t VALUES (1000)")
	must(c.t, err)
	v, err := client.ReadIndex(ctx, api.ReadIndexQuery{})
	must(c.t, err)
	if got, err := client.Applied(ctx, api.AppliedQuery{Index: v.Index}, 300*time.Millisecond); api.KindOf(err) != api.KindTimeout {
		c.t.Errorf("what cannot be applied is applied: %+v, %v", got, err)
	}
	everywhere := api.AppliedQuery{Index: v.Index, Everywhere: true}
	elsewhere := c.Client(c.healthy())
	defer elsewhere.Close()
	if _, err := elsewhere.Applied(ctx, everywhere, 300*time.Millisecond); api.KindOf(err) != api.KindTimeout ||
		!strings.Contains(err.Error(), follower.Name) {
		c.t.Errorf("what cannot be applied on %s is applied everywhere: %v", follower.Name, err)
	}
	late := make(chan error, 3)
	for _, index := range []uint64{v.Index, before.Index} {
		go func() {
			_, err := client.Applied(ctx, api.AppliedQuery{Index: index}, 10*time.Second)
			late <- err
		}()
	}
	if err := <-late; err != nil {
		c.t.Errorf("what was applied before: %v", err)
	}
	go func() {
		_, err := elsewhere.Applied(ctx, everywhere, 10*time.Second)
		late <- err
	}()
	_, err = reader.ExecContext(ctx, "UNLOCK TABLES")
	must(c.t, errors.Join(err, <-late, <-late))
}
