package drivers

import (
	"fmt"
	"strings"
	"testing"
)

// TestClusterInSQL: a DBA with nothing but the vendor's client sees the cluster on port 6450, in a session that goes
// on; an account without the privileges sees nothing, a role that is active counts, and port 6446 of a router that
// passes bytes on says what mysqld says.
func TestClusterInSQL(t *testing.T) {
	t.Parallel()
	c := lease(t)
	node := c.Nodes()[0] // whose router is asked, whichever node leads; it passes bytes on (build)
	split := door{Host: node.Host, Port: node.Ports.Split}
	s := settings{Password: c.State().Password}
	by := " IDENTIFIED BY '" + s.Password + "'"
	c.sql("DROP USER IF EXISTS sees, neither, enabled", "DROP ROLE IF EXISTS watcher",
		"CREATE ROLE watcher", "GRANT PROCESS ON *.* TO watcher",
		"CREATE USER sees"+by, "GRANT REPLICATION CLIENT ON *.* TO sees", "CREATE USER neither"+by,
		"CREATE USER enabled"+by+" DEFAULT ROLE watcher",
		"CREATE DATABASE IF NOT EXISTS surface", "CREATE TABLE IF NOT EXISTS surface.`x,PROCESS ON *.* TO y`(i INT)",
		"GRANT SELECT ON surface.`x,PROCESS ON *.* TO y` TO neither")
	// says runs the client and looks for texts in what it prints.
	says := func(d door, user, statements string, want ...string) error {
		out, err := s.mysql(d, user, statements)
		if err != nil {
			out += "\n" + err.Error()
		}
		for _, w := range want {
			if !strings.Contains(out, w) {
				return fmt.Errorf("no %q in:\n%s", w, out)
			}
		}
		return nil
	}
	// The schema and the names make mysqld announce changes of the session, which the router's own answers must not
	// seem to do.
	see := "USE information_schema; SET NAMES utf8mb4; SET @@trireme_consistency = 'EVENTUAL'; SHOW TRIREME STATUS; " +
		"SHOW TRIREME MEMBERS; SHOW TRIREME HISTORY LIMIT 1; SELECT 40 + 2;"
	for _, tc := range []struct {
		user, statements string
		want             []string
	}{
		{"sees", see, []string{c.State().Cluster + "\t1\t", "\nn1\t", "\nn3\t", "\tNULL", "42"}},
		{"enabled", see, []string{c.State().Cluster + "\t1\t", "\nn1\t", "\nn3\t", "\tNULL", "42"}},
		{"neither", "SHOW TRIREME STATUS;", []string{"ERROR 1227", "REPLICATION CLIENT, PROCESS"}},
		// swe7 has no backtick: the name of the table stands among mysqld's own words.
		{"neither", "SET character_set_results = swe7; SHOW GRANTS; SHOW TRIREME STATUS;", []string{",PROCESS ON *.* TO y",
			"ERROR 1227"}},
		// mysqld's own word: nothing changes the cluster in SQL
		{"sees", "CALL trireme.switchover('n2');", []string{"ERROR 1370"}},
	} {
		eventually(t, healLimit, tc.user+": "+tc.statements,
			func() error { return says(split, tc.user, tc.statements, tc.want...) })
	}
	eventually(t, healLimit, "bytes are passed on", func() error {
		return says(door{Host: node.Host, Port: node.Ports.RW}, "sees", "SHOW TRIREME STATUS;", "ERROR 1064")
	})
}
