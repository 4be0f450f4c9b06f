package drivers

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-sql-driver/mysql"

	"trireme/internal/demo"
)

// TestClusterInSQL: a DBA with nothing but the vendor's client sees the cluster on port 6450 and moves leadership there, in a session that goes on;
// accounts without the privileges see and move nothing, and port 6446 of a router that passes bytes on says what mysqld says.
func TestClusterInSQL(t *testing.T) {
	c := share(t)
	node := c.Nodes()[0] // whose router is asked, whoever leads; it passes bytes on (build)
	split := door{Host: node.Host, Port: node.Ports.Split}
	s := settings{Password: c.State().Password}
	by := " IDENTIFIED BY '" + s.Password + "'"
	c.sql("DROP USER IF EXISTS sees, moves, neither, enabled", "DROP ROLE IF EXISTS mover", "CREATE ROLE mover", "GRANT REPLICATION_SLAVE_ADMIN, PROCESS ON *.* TO mover",
		"CREATE USER sees"+by, "GRANT REPLICATION CLIENT ON *.* TO sees", "CREATE USER moves"+by, "GRANT CONNECTION_ADMIN ON *.* TO moves", "CREATE USER neither"+by,
		"CREATE USER enabled"+by+" DEFAULT ROLE mover",
		"CREATE DATABASE IF NOT EXISTS surface", "CREATE TABLE IF NOT EXISTS surface.`x,SUPER ON *.* TO y`(i INT)", "GRANT SELECT ON surface.`x,SUPER ON *.* TO y` TO neither")
	// says runs the client and looks for texts in what it prints: a tab between columns, or, with what shows the text of an OK, tables.
	says := func(d door, user, statements string, want ...string) error {
		var options []string
		if strings.Contains(statements, "CALL") {
			options = append(options, "-vvv")
		}
		out, err := s.mysql(d, user, statements, options...)
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
	// The schema and the names make mysqld announce changes of the session, which the router's own answers must not seem to do.
	see := "USE information_schema; SET NAMES utf8mb4; SET @@trireme_consistency = 'EVENTUAL'; SHOW TRIREME STATUS; SHOW TRIREME MEMBERS; SHOW TRIREME HISTORY LIMIT 1; SELECT 40 + 2;"
	for _, tc := range []struct {
		user, statements string
		want             []string
	}{
		{"sees", see, []string{"drivers\t1\t", "\nn1\t", "\nn3\t", "\tNULL", "42"}},
		{"sees", "CALL trireme.switchover('n2');", []string{"ERROR 1227", "REPLICATION_SLAVE_ADMIN, CONNECTION_ADMIN, SUPER"}},
		{"neither", "SHOW TRIREME STATUS;", []string{"ERROR 1227", "REPLICATION CLIENT, PROCESS"}},
		// swe7 has no backtick: the name of the table stands among mysqld's own words.
		{"neither", "SET character_set_results = swe7; SHOW GRANTS; CALL trireme.switchover();", []string{",SUPER ON *.* TO y", "ERROR 1227"}},
		{"moves", "CALL trireme.switchover('nobody');", []string{"ERROR 1210", `no node "nobody"; nodes are n1 n2 n3`}},
	} {
		eventually(t, healLimit, tc.user+": "+tc.statements, func() error { return says(split, tc.user, tc.statements, tc.want...) })
	}
	eventually(t, healLimit, "bytes are passed on", func() error {
		return says(door{Host: node.Host, Port: node.Ports.RW}, "sees", "SHOW TRIREME STATUS;", "ERROR 1064", "near 'TRIREME STATUS'")
	})
	eventually(t, healLimit, "a switchover to a node", func() error {
		leader, next := c.healthy(), c.Nodes()[1]
		if next == leader {
			next = c.Nodes()[2]
		}
		return says(split, "moves", "USE information_schema; CALL trireme.switchover('"+next.Name+"'); SELECT CONCAT('port ', @@port, ' ', DATABASE());",
			next.Name+" leads now, in term ", "(before: "+leader.Name+"); writes were held for", fmt.Sprintf("port %d information_schema", next.Ports.MySQL))
	})
	eventually(t, healLimit, "a switchover by a role", func() error {
		c.healthy()
		return says(split, "enabled", "SET character_set_results = swe7; CALL trireme.switchover();", " leads now, in term ")
	})
	refusedPrepared(t, s, split)
	audited(t, node, `"state":"done","by":"mysql moves@%","from":"sql 127.0.0.1:`, `"state":"done","by":"mysql enabled@%"`, `"state":"refused","by":"mysql moves@%"`)
}

func refusedPrepared(t *testing.T, s settings, d door) {
	t.Helper()
	db := s.openGo(d, "moves", "skip-verify")
	defer db.Close()
	eventually(t, healLimit, "a prepared statement is refused", func() error {
		var e *mysql.MySQLError
		if _, err := db.ExecContext(t.Context(), "CALL trireme.switchover(?)", "n1"); !errors.As(err, &e) || e.Number != 1295 {
			return fmt.Errorf("it says %v", err)
		}
		return nil
	})
}

// audited looks for switchovers in a node's audit log.
func audited(t *testing.T, n *demo.Node, want ...string) {
	t.Helper()
	log, err := os.ReadFile(filepath.Join(n.Dir, "audit.log"))
	must(t, err)
	for _, w := range want {
		if w = `"what":"switchover",` + w; !strings.Contains(string(log), w) {
			t.Errorf("no %s in\n%s", w, log)
		}
	}
}
