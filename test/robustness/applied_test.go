package robustness

import "testing"

// TestLeaderHasApplied: a node that takes over opens writes after everything that was acknowledged (S6). Locks keep
// the followers from applying a row; who reads through the read-write port once the leader is lost sees the row, or
// nothing yet. The new leader ends who holds the lock.
func TestLeaderHasApplied(t *testing.T) {
	t.Parallel()
	c := lease(t)
	leader := c.healthy()
	ctx := t.Context()
	db, err := c.Routed().Open("")
	must(t, err)
	defer db.Close()
	for _, q := range []string{"CREATE DATABASE applied", "CREATE TABLE applied.t (id INT PRIMARY KEY)"} {
		_, err := db.ExecContext(ctx, q)
		must(t, err)
	}
	for _, n := range c.others(leader) {
		reader := c.session(n)
		eventually(t, healLimit, n.Name+" has the table", func() error { return reader.try("LOCK TABLES applied.t READ") })
	}
	_, err = db.ExecContext(ctx, "INSERT INTO applied.t VALUES (1)")
	must(t, err)
	c.crash(leader)
	eventually(t, healLimit, "a read through the read-write port", func() error {
		var rows int
		err := db.QueryRowContext(ctx, "SELECT COUNT(*) FROM applied.t").Scan(&rows)
		if err == nil && rows != 1 {
			t.Error("an acknowledged row is not there")
		}
		return err
	})
	if c.view().Leader == leader.Name {
		t.Error("leadership did not move")
	}
}
