package robustness

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"trireme/internal/ops/advise"
	"trireme/lab/needs"
	"trireme/lab/testkit"
)

// TestAdvise: `trireme advise` names the tables, the row, the statement and the setting that are made for it to find,
// on real servers.
func TestAdvise(t *testing.T) {
	needs.Long(t)
	c := lease(t)
	c.healthy()
	c.write("CREATE DATABASE IF NOT EXISTS advised",
		"CREATE TABLE IF NOT EXISTS advised.bare (v INT)", "CREATE TABLE IF NOT EXISTS advised.indexed (v INT, KEY (v))",
		"CREATE TABLE IF NOT EXISTS advised.places (g GEOMETRY NOT NULL SRID 0, SPATIAL INDEX (g))",
		"CREATE TABLE IF NOT EXISTS advised.parent (id INT PRIMARY KEY)",
		"CREATE TABLE IF NOT EXISTS advised.child (id INT PRIMARY KEY, p INT, FOREIGN KEY (p) REFERENCES advised.parent (id))",
		"CREATE TABLE IF NOT EXISTS advised.dependent (id INT PRIMARY KEY, p INT, FOREIGN KEY (p) REFERENCES advised.parent (id) ON DELETE CASCADE)",
		"CREATE TRIGGER advised.up BEFORE DELETE ON advised.dependent FOR EACH ROW DELETE FROM advised.parent WHERE id = OLD.p",
		"CREATE TABLE IF NOT EXISTS advised.divided (id INT PRIMARY KEY, s DECIMAL(20, 10) AS (id / 7) STORED, CHECK (id / 3 < 9999))",
		"CREATE TABLE IF NOT EXISTS advised.counters (id INT PRIMARY KEY, n INT)",
		"REPLACE INTO advised.counters VALUES (1, 0), (2, 0)",
		"CREATE TABLE IF NOT EXISTS advised.large (v INT, id INT AUTO_INCREMENT PRIMARY KEY)",
		"INSERT INTO advised.large (v) WITH RECURSIVE n (k) AS (SELECT 1 UNION ALL SELECT k + 1 FROM n WHERE k < 250) SELECT a.k FROM n a, n b")
	for _, table := range []string{"bare", "indexed"} {
		c.write("INSERT INTO advised."+table+" SELECT v FROM advised.large LIMIT 1500", "UPDATE advised."+table+
			" SET v = 0 WHERE v = 7")
	}
	other := c.others(c.healthy())[0]
	s := c.admin(other)
	had := s.value("SELECT @@GLOBAL.max_connections")
	s.exec("SET GLOBAL max_connections = 123")

	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for range 4 {
		db, err := c.Routed().Open("")
		must(t, err)
		wg.Go(func() {
			defer db.Close()
			for ctx.Err() == nil {
				// an error is a change of leader, or the end
				_, _ = db.ExecContext(ctx, "UPDATE advised.counters SET n = n + 1 WHERE id = 1")
			}
		})
	}
	defer func() { cancel(); wg.Wait() }()

	want := map[string]string{
		"warn " + advise.NoIndex: "advised.bare", "warn " + advise.NoPrimaryKey: "advised.indexed",
		"warn " + advise.SpatialKey: "advised.places", "info " + advise.ForeignKeys: "advised.parent",
		"warn " + advise.UnsafeCascade: "advised.dependent", "info " + advise.SessionDependent: "advised.divided",
		"warn " + advise.HotRow: "advised.counters", "warn " + advise.LargeStatement: "INSERT INTO `advised`",
		"warn " + advise.SettingsDiffer: "",
	}
	// counters of a leader begin with its mysqld, and waits are looked at for a moment only
	eventually(t, healLimit, "all advice", func() error {
		found, err := c.advise()
		if err != nil {
			return err
		}
		for code, where := range want {
			if !strings.Contains(found, code+" "+where) {
				return fmt.Errorf("%s of %q is not in:\n%s", code, where, found)
			}
		}
		if strings.Contains(found, "-key advised.counters") || strings.Contains(found, "-index advised.parent") {
			t.Errorf("found what is in order:\n%s", found)
		}
		return nil
	})
	cancel()
	wg.Wait()
	s.exec("SET GLOBAL max_connections = " + had)
	c.write("DROP DATABASE IF EXISTS advised")
	eventually(t, healLimit, "no advice about what is gone", func() error {
		found, err := c.advise()
		if err == nil && (strings.Contains(found, advise.NoIndex+" advised.") || strings.Contains(found, "123")) {
			err = fmt.Errorf("found:\n%s", found)
		}
		return err
	})
}

// advise lists findings, one a line: severity, code, where, what.
func (c *cluster) advise() (string, error) {
	ctx, cancel := context.WithTimeout(c.t.Context(), healLimit)
	defer cancel()
	s := c.State()
	var out, errOut bytes.Buffer
	cmd := exec.CommandContext(ctx, testkit.Program(c.t, testkit.Trireme), "advise", "--for", "2s", "--json",
		"--user", s.User, "--api", fmt.Sprintf("127.0.0.1:%d", c.Nodes()[0].Ports.API))
	cmd.Env = append(os.Environ(), "TRIREME_MYSQL_PASSWORD="+s.Password)
	cmd.Stdout, cmd.Stderr = &out, &errOut
	err := cmd.Run()
	var answer struct {
		OK       bool             `json:"ok"`
		Findings []advise.Finding `json:"findings"`
	}
	if jerr := json.Unmarshal(out.Bytes(), &answer); jerr != nil {
		return "", fmt.Errorf("%w: %s", err, errOut.String())
	}
	if answer.OK != (cmd.ProcessState.ExitCode() == 0) {
		return "", fmt.Errorf("exit code %d: %s", cmd.ProcessState.ExitCode(), out.String())
	}
	var b strings.Builder
	for _, f := range answer.Findings {
		fmt.Fprintln(&b, f.Severity, f.Code, f.Where, f.What)
	}
	return b.String(), nil
}
