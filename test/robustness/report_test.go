package robustness

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"trireme/internal/api"
	"trireme/internal/control/recorder"
	"trireme/internal/ops/demo"
	"trireme/lab/needs"
)

// report asks a node for the last five minutes.
func (c *cluster) report(n *demo.Node) (r api.Report, err error) {
	code, out := c.trireme(n, "report", "--from", "5m", "--json")
	if code != 0 {
		return r, fmt.Errorf("exit code %d: %s", code, out)
	}
	return r, json.Unmarshal([]byte(out), &r)
}

// TestReport: a report tells of the load, of a session that waits for a row, of statements without their values, and of
// a failover, with the old leader's part in it.
func TestReport(t *testing.T) {
	needs.Long(t)
	c := lease(t)
	old := c.healthy()
	c.write("CREATE DATABASE IF NOT EXISTS reported",
		"CREATE TABLE IF NOT EXISTS reported.counters (id INT PRIMARY KEY, n INT)",
		"REPLACE INTO reported.counters VALUES (1, 0), (2, 0), (3, 0), (4, 0)")
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	defer func() { cancel(); wg.Wait() }()
	for i := range 4 {
		db, err := c.Routed().Open("")
		must(t, err)
		wg.Go(func() {
			defer db.Close()
			for ctx.Err() == nil { // an error is a change of leader, or the end
				_, _ = db.ExecContext(ctx, fmt.Sprintf("UPDATE reported.counters SET n = n + 4711 WHERE id = %d", i+1))
				if i == 0 { // the others of row 1 wait
					if tx, err := db.BeginTx(ctx, nil); err == nil {
						_, _ = tx.ExecContext(ctx, "UPDATE reported.counters SET n = n + 1 WHERE id = 1")
						_, _ = tx.ExecContext(ctx, "DO SLEEP(3)")
						_ = tx.Rollback()
					}
				}
			}
		})
	}
	db, err := c.Routed().Open("")
	must(t, err)
	defer db.Close()
	wg.Go(func() {
		for ctx.Err() == nil {
			_, _ = db.ExecContext(ctx, "UPDATE reported.counters SET n = 0 WHERE id = 1")
		}
	})

	complete := func(r api.Report, leader string) error {
		active := map[string]int{}
		var commits, looks uint64
		var used [4]uint64 // by the leader: CPU of mysqld and daemon, their memory
		text := ""
		for _, n := range r.Nodes {
			if len(n.Buckets) == 0 || n.Problem != "" {
				return fmt.Errorf("%s: %s", n.Node, n.Problem)
			}
			for _, b := range n.Buckets {
				if n.Node == leader {
					commits += b.Commits[api.StageTotal].Count
					used[0], used[1] = used[0]+b.MySQL["mysqld_cpu_ms"], used[1]+b.MySQL["daemon_cpu_ms"]
					used[2], used[3] = max(used[2], b.MySQL["mysqld_memory_bytes"]), max(used[3], b.MySQL["daemon_memory_bytes"])
				}
				for wait, seen := range b.Active {
					active[wait] += seen
				}
			}
			for _, s := range n.Statements {
				text += s.Text + "\n"
				if strings.Contains(s.Text, "`PROCESSLIST_COMMAND` NOT IN") {
					looks += s.Count
				}
			}
			for _, s := range n.Sessions {
				text += s.Text + "\n"
			}
		}
		switch {
		case strings.Contains(text, "4711"):
			t.Fatal("a statement has its values: " + text)
		case commits == 0 || active[recorder.WaitRowLock] == 0 || active[recorder.WaitMajority]+
			active[recorder.WaitEngine] == 0:
			return fmt.Errorf("%d commits of %s, sessions %v", commits, leader, active)
		case slices.Contains(used[:], 0) || used[2] < used[3]:
			return fmt.Errorf("mysqld and daemon of %s have used %d", leader, used)
		case !strings.Contains(text, "UPDATE `reported` . `counters` SET `n` = `n` + ?"):
			return errors.New("the statement is not there: " + text)
		case looks > 20:
			return fmt.Errorf("the recorder's own statements are counted, %d of them: %s", looks, text)
		}
		return nil
	}
	asked := c.others(old)[0]
	eventually(t, 2*healLimit, "a report of the load", func() error {
		r, err := c.report(asked)
		if err == nil {
			err = complete(r, old.Name)
		}
		return err
	})

	term := c.view().Term
	c.crash(old)
	leader := c.failedOver(term)
	eventually(t, 2*healLimit, "a report of the failover", func() error {
		r, err := c.report(asked)
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(r.Events, func(e api.Event) bool { return e.To == leader.Name }) {
			return fmt.Errorf("no change of leaders in %+v", r.Events)
		}
		return complete(r, leader.Name)
	})
	page := filepath.Join(t.ArtifactDir(), "report.html")
	c.says(asked, 0, "report --from 5m -o "+page, page)
	b, err := os.ReadFile(page)
	must(t, err)
	if _, led, _ := strings.Cut(string(b), `id="led"`); !strings.Contains(led, "<td class=\"msg\">"+leader.Name+"</td>") {
		t.Error("the page does not say that " + leader.Name + " led")
	}
}

// TestConfigHistory: changes of the settings are told with who made them, also after a change of leaders, and can be
// taken back.
func TestConfigHistory(t *testing.T) {
	t.Parallel()
	c := lease(t)
	leader := c.healthy()
	other := c.others(leader)[0]
	before := c.says(other, 0, "config show")
	c.says(other, 0, "config edit failback_after=77s zone."+other.Name+"=east")
	var v api.ConfigHistoryView
	must(t, json.Unmarshal([]byte(c.says(other, 0, "config history --json")), &v))
	if len(v.Revisions) == 0 {
		t.Fatalf("%+v", v)
	}
	last := v.Revisions[len(v.Revisions)-1]
	if last.Version != v.Version || len(last.Changes) != 2 || !strings.HasPrefix(last.By, "operator from 127.0.0.1:") ||
		time.Since(last.At) > time.Minute {
		t.Errorf("%+v", last)
	}
	_, err := c.Switchover(t.Context(), other.Name)
	must(t, err)
	c.says(leader, 0, fmt.Sprintf("config rollback %d --yes", v.Version-1), "failback_after", "1m17s", "zone."+other.Name,
		"east")
	eventually(t, steerLimit, "the settings as before on "+leader.Name, func() error {
		// The version is another one.
		_, was, _ := strings.Cut(before, "\n")
		if _, is, _ := strings.Cut(c.says(leader, 0, "config show"), "\n"); is != was {
			return errors.New(is)
		}
		return nil
	})
}
