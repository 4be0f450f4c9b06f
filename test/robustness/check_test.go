package robustness

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"trireme/internal/api"
	"trireme/internal/ops/check"
	"trireme/internal/ops/demo"
	"trireme/lab/needs"
	"trireme/lab/testkit"
)

// damage is what is changed of one row, and its column.
type damage struct{ column, value string }

// damages are the smallest changes of each type that must not be overlooked. Row i of checked.types gets the i-th.
var damages = []damage{
	{"f", "0.10000001"}, {"d", "2.2500000000000004"}, {"de", "123456789012345.00001"},
	{"b", "b'1000000000000000000000000000000000000000000000000000000000000000'"}, {"e", "'b'"}, {"s", "'x,y'"},
	{"y", "1999"}, {"da", "'2024-02-28'"}, {"ti", "'-12:00:00.000001'"}, {"dt", "'2024-02-29 12:00:00.000001'"},
	{"ts", "'2024-02-29 12:00:00.000001'"}, {"c", "'A'"}, {"vc", "'a '"}, {"vi", "'ä'"}, {"bi", "X'00000001'"},
	{"vb", "X''"}, {"tx", "CONCAT(REPEAT('x', 70000), 'y')"}, {"bl", "NULL"}, {"js", `'{"a": [1, null, 2.50]}'`},
	{"g", "ST_GeomFromText('POINT(1 2)', 4326)"}, {"n", "''"}, {"i", "-1"},
}

// checkedTables have all types, a key of several columns in partitions, and no key at all.
var checkedTables = []string{
	"CREATE DATABASE IF NOT EXISTS checked",
	"CREATE TABLE IF NOT EXISTS checked.types (id INT PRIMARY KEY, f FLOAT, d DOUBLE, de DECIMAL(20,5), b BIT(64), e ENUM('', 'a', 'b'), s SET('x', 'y'), y YEAR," +
		" da DATE, ti TIME(6), dt DATETIME(6), ts TIMESTAMP(6) NULL, c CHAR(5), vc VARCHAR(50) CHARACTER SET latin1, vi VARCHAR(20) CHARACTER SET utf16," +
		" bi BINARY(4), vb VARBINARY(9), tx TEXT(100000), bl LONGBLOB, js JSON, g GEOMETRY, n VARCHAR(5), i INT, virt INT AS (i + 1))",
	"REPLACE INTO checked.types (id, f, d, de, b, e, s, y, da, ti, dt, ts, c, vc, vi, bi, vb, tx, bl, js, g, n, i) WITH RECURSIVE n (k) AS (SELECT 1 UNION ALL SELECT k + 1 FROM n WHERE k < 40)" +
		" SELECT k, 0.1, 2.25, 123456789012345, 0, '', 'x', 2024, '2024-02-29', '-12:00:00', '2024-02-29 12:00:00', '2024-02-29 12:00:00', 'a', 'a', 'a', X'00000000', NULL," +
		" CONCAT(REPEAT('x', 70000), 'x'), '', '{\"a\": [1, null, 2.25]}', ST_GeomFromText('POINT(1 2)'), NULL, 0 FROM n",
	"CREATE TABLE IF NOT EXISTS checked.big (a VARCHAR(20), b BIGINT, day DATE, v VARCHAR(100), PRIMARY KEY (a, b, day)) PARTITION BY KEY (b) PARTITIONS 3",
	"REPLACE INTO checked.big WITH RECURSIVE n (k) AS (SELECT 1 UNION ALL SELECT k + 1 FROM n WHERE k < 999)" +
		" SELECT CONCAT('Straße ', k % 7), k + 1000 * m, '2024-02-29', REPEAT('v', k % 90) FROM n, (SELECT 0 AS m UNION SELECT 1 UNION SELECT 2 UNION SELECT 3) four",
	"CREATE TABLE IF NOT EXISTS checked.heap (v INT)", "DELETE FROM checked.heap",
	"INSERT INTO checked.heap VALUES (1), (1), (2), (2), (3)",
	"CREATE OR REPLACE VIEW checked.seen AS SELECT v FROM checked.heap",
}

// TestCheck: `trireme check` finds no difference while the cluster is written to; then the smallest change of each
// type, a row too many, a row too few and a changed row of a table without a key, all made without the log's knowledge
// on one node; and --repair brings the node back.
func TestCheck(t *testing.T) {
	needs.Long(t)
	c := lease(t)
	c.healthy()
	began := time.Now()
	step := func(what string) { t.Logf("%s: after %v", what, time.Since(began).Round(100*time.Millisecond)) }
	c.write(checkedTables...)
	step("tables")
	const sessions = 4
	stop := c.busy(sessions)

	out := c.checked(0, "--table", "checked")
	if !out.OK || out.Tables != 3 || len(out.Nodes) != 3 || out.Rows < 3996+40+5 {
		t.Fatalf("%+v", out)
	}
	asked := time.Now()
	if code, stdout, stderr := c.checkVerb("--table", "checked.nope", "--json"); failedAs(code, []byte(stdout), api.KindNotFound, "check", "checked.nope") != nil ||
		time.Since(asked) > time.Minute {
		t.Errorf("a table that does not exist, after %v: exit code %d: %s %s", time.Since(asked), code, stdout, stderr)
	}
	if all := c.checked(0); all.Tables < 3+8 {
		t.Errorf("accounts were not compared: %+v", all)
	}
	step(fmt.Sprintf("nothing found, %d of %d ranges under a lock", out.Locked, out.Ranges))

	leader := c.healthy()
	c.behindTheLog(leader, "UPDATE checked.big SET v = 'wrong' WHERE "+bigRow(998))
	c.leaderIsWrong(leader)
	c.behindTheLog(leader, "UPDATE checked.big SET v = REPEAT('v', 998 % 90) WHERE "+bigRow(998))
	step("the leader is told from the others")

	stop() // to close and open a follower while it applies would hold its applier up
	victim := c.others(c.healthy())[0]
	bad := []string{"DELETE FROM checked.types WHERE id = 39", "INSERT INTO checked.types (id) VALUES (1000)",
		"UPDATE checked.big SET v = CONCAT('V', SUBSTR(v, 2)) WHERE " + bigRow(999),
		"UPDATE checked.heap SET v = 2 WHERE v = 1"}
	for i, d := range damages {
		bad = append(bad, fmt.Sprintf("UPDATE checked.types SET %s = %s WHERE id = %d", d.column, d.value, i+1))
	}
	c.behindTheLog(victim, bad...)
	stop = c.busy(sessions)
	c.finds(c.checked(1, "--table", "checked"), victim)
	stop()
	step("all damage found")

	copies := c.copies(victim)
	eventually(t, 2*healLimit, "a repair", func() error {
		if c.healthy() == victim { // the machine has no CPU for it at the moment
			_, err := c.Switchover(t.Context(), "")
			return errors.Join(errors.New("the victim led"), err)
		}
		code, text, stderr := c.checkVerb("--table", "checked", "--repair")
		if code != 0 {
			return fmt.Errorf("exit code %d: %s %s", code, text, stderr)
		}
		return nil
	})
	if c.copies(victim) <= copies {
		t.Errorf("%s was not copied again", victim.Name)
	}
	step("repaired")
	c.healthy()
	if out := c.checked(0, "--table", "checked"); !out.OK {
		t.Errorf("%+v", out)
	}
	c.write("DROP DATABASE IF EXISTS checked")
}

// write runs statements that can be repeated, on the leader.
func (c *cluster) write(statements ...string) {
	c.t.Helper()
	for _, q := range statements {
		eventually(c.t, healLimit, q, func() error {
			ctx, cancel := context.WithTimeout(c.t.Context(), healLimit)
			defer cancel()
			n, err := c.Leader(ctx)
			if err != nil {
				return err
			}
			l := c.Direct(n)
			l.StatementTimeout = sqlLimit
			db, err := l.Open("")
			if err != nil {
				return err
			}
			defer db.Close()
			_, err = db.ExecContext(ctx, q)
			return err
		})
	}
}

// bigRow selects one of the first rows of checked.big, by its whole key: a session that locks more of a follower than
// the row it changes can stop the applier, which commits in order, without a deadlock that InnoDB sees.
func bigRow(b int) string {
	return fmt.Sprintf("a = 'Straße %d' AND b = %d AND day = '2024-02-29'", b%7, b)
}

// busy has sessions change rows until stop is called: some change often, and no row that is damaged.
func (c *cluster) busy(sessions int) (stop func()) {
	ctx, cancel := context.WithCancel(c.t.Context())
	var wg sync.WaitGroup
	for i := range sessions {
		db, err := c.Routed().Open("")
		must(c.t, err)
		wg.Go(func() {
			defer db.Close()
			for k := i; ctx.Err() == nil; k += sessions {
				// An error is a change of leader, or the end.
				_, _ = db.ExecContext(ctx, "UPDATE checked.big SET v = ? WHERE "+bigRow(1+(k*37)%900),
					fmt.Sprint(time.Now().UnixNano()))
				_, _ = db.ExecContext(ctx, "INSERT IGNORE INTO checked.big VALUES ('new', ?, '2024-01-01', ?)", 100_000+k%500,
					fmt.Sprint(k))
				_, _ = db.ExecContext(ctx, "DELETE FROM checked.big WHERE a = 'new' AND b = ? AND day = '2024-01-01'", 100_000+
					(k+250)%500)
			}
		})
	}
	var once sync.Once
	stop = func() { once.Do(func() { cancel(); wg.Wait() }) }
	c.t.Cleanup(stop)
	return stop
}

// behindTheLog changes the data of one node as no log shows.
func (c *cluster) behindTheLog(n *demo.Node, statements ...string) {
	c.t.Helper()
	s := c.admin(n)
	defer s.close()
	var on bool
	must(c.t, s.conn.QueryRowContext(c.t.Context(), "SELECT @@GLOBAL.super_read_only").Scan(&on))
	s.exec("SET SESSION sql_log_bin = 0")
	if on {
		s.exec("SET GLOBAL super_read_only = OFF")
	}
	s.exec("SET SESSION sql_mode = ''")
	s.exec(statements...)
	if on {
		s.exec("SET GLOBAL super_read_only = ON")
	}
}

// checkOutput is what --json prints.
type checkOutput struct {
	OK bool `json:"ok"`
	check.Result
}

// checkCommand is trireme check with the account of the demo, at full speed unless args say otherwise.
func (c *cluster) checkCommand(ctx context.Context, args ...string) *exec.Cmd {
	s := c.State()
	cmd := exec.CommandContext(ctx, testkit.Program(c.t, testkit.Trireme),
		append([]string{"check", "--share", "1", "--max-running", "1000", "--max-lag", "1h", "--user", s.User,
			"--api", fmt.Sprintf("127.0.0.1:%d", c.Nodes()[0].Ports.API), "--token-file", kit.Credential(c.Cluster)},
			args...)...)
	cmd.Env = append(os.Environ(), "TRIREME_MYSQL_PASSWORD="+s.Password)
	return cmd
}

// checkVerb runs trireme check to its end.
func (c *cluster) checkVerb(args ...string) (code int, stdout, stderr string) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), 2*healLimit)
	defer cancel()
	var out, errOut bytes.Buffer
	cmd := c.checkCommand(ctx, args...)
	cmd.Stdout, cmd.Stderr = &out, &errOut
	err := cmd.Run()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		c.t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), out.String(), errOut.String()
}

// checked runs a check that compares everything; on a machine without CPU a node may be away for a moment.
func (c *cluster) checked(want int, args ...string) (out checkOutput) {
	c.t.Helper()
	eventually(c.t, 2*healLimit, "a check", func() error {
		c.healthy()
		code, stdout, stderr := c.checkVerb(append(args, "--json")...)
		out = checkOutput{}
		if err := json.Unmarshal([]byte(stdout), &out); err != nil {
			return fmt.Errorf("exit code %d: %s %w", code, stderr, err)
		}
		if len(out.NotChecked) > 0 {
			return fmt.Errorf("not checked: %+v", out.NotChecked)
		}
		if code != want {
			c.t.Fatalf("check %v: exit code %d, not %d: %s %s", args, code, want, stdout, stderr)
		}
		return nil
	})
	return out
}

// leaderIsWrong: a leader that differs from both followers is named, and not thrown away.
func (c *cluster) leaderIsWrong(leader *demo.Node) {
	c.t.Helper()
	out := c.checked(1, "--table", "checked.big")
	if len(out.Differences) != 1 {
		c.t.Fatalf("%+v", out.Differences)
	}
	if d := out.Differences[0]; !slices.Equal(d.Wrong, []string{leader.Name}) || d.Leader != (out.Leader == leader.Name) ||
		d.Count != 1 || !strings.Contains(d.Rows[0].Key, "998") {
		c.t.Errorf("%+v", d)
	}
	code, stdout, stderr := c.checkVerb("--table", "checked.big", "--repair", "--json")
	if c.healthy() == leader && failedAs(code, []byte(stdout), api.KindNeeded, "check", leader.Name) != nil {
		c.t.Errorf("repair of a leader: exit code %d: %s %s", code, stdout, stderr)
	}
}

// finds: everything that was damaged, and nothing else.
func (c *cluster) finds(out checkOutput, victim *demo.Node) {
	c.t.Helper()
	found := map[string]check.Row{}
	for _, d := range out.Differences {
		if !slices.Equal(d.Wrong, []string{victim.Name}) || d.Kind != check.KindRows {
			c.t.Errorf("%s differs, not %v: %s", victim.Name, d.Wrong, d)
		}
		if d.Table == "checked.heap" {
			found[d.Table] = check.Row{}
		}
		for _, r := range d.Rows {
			found[d.Table+" "+r.Key] = r
		}
	}
	want := map[string]string{"checked.heap": "", "checked.types 39": "", "checked.types 1000": "",
		"checked.big 'Straße 5', 999, '2024-02-29'": "v"}
	for i, d := range damages {
		want[fmt.Sprintf("checked.types %d", i+1)] = d.column
	}
	for what, column := range want {
		if r, ok := found[what]; !ok {
			c.t.Errorf("%s %s was not found", what, column)
		} else if column != "" && !slices.Equal(r.Columns, []string{column}) {
			c.t.Errorf("%s: columns %v differ, not %s", what, r.Columns, column)
		}
	}
	if len(found) != len(want) {
		c.t.Errorf("found %d, want %d: %+v", len(found), len(want), out.Differences)
	}
	if absent := found["checked.types 39"].Hash[victim.Name]; absent != check.Absent {
		c.t.Errorf("the row that is missing has %q", absent)
	}
}
