package robustness

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"trireme/internal/base/config"
	"trireme/internal/base/durable"
	"trireme/internal/core/raftlog"
	"trireme/internal/ops/demo"
	"trireme/lab/verify"
)

// TestEncryptedLog: of three nodes one has the keys of its raft log from a file, one from a command, and one's log is
// not encrypted. The leader is killed under load and comes back with a new key; a node whose key is missing does not
// start, says which one it needs, and has changed nothing. Nothing acknowledged is lost, and no file in the directory
// of an encrypted log shows a row.
func TestEncryptedLog(t *testing.T) {
	t.Parallel()
	const row = "a row that no one else may read"
	keys := filepath.Join(t.TempDir(), "keys")
	newKey := func(id string) {
		text, err := os.ReadFile(keys)
		if err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
		text, err = raftlog.AddKey(text, id)
		must(t, err)
		must(t, durable.WriteFile(keys, text, 0o600))
	}
	newKey("first")
	c := createShape(t, shape{nodes: 3, tune: func(n *config.Node) {
		n.Raft.LogMax = 256 * config.MiB // so that nothing is purged that the test looks for
		switch n.Name {
		case "n1":
			n.Raft.LogKeyFile = keys
		case "n2":
			n.Raft.LogKeyCommand = []string{"cat", keys}
		}
	}})
	raft := func(n *demo.Node) string { return config.Node{Dir: n.Dir}.RaftDir() }
	c.healthy()
	for _, n := range c.Nodes()[:2] {
		must(t, c.tells(n, "log encrypted"))
	}
	c.lead(c.Nodes()[0])
	w := c.load(verify.Config{Writers: 8, Mixed: true, Rate: steady()})
	c.write("CREATE TABLE IF NOT EXISTS workload.secret (id INT PRIMARY KEY AUTO_INCREMENT, v VARCHAR(100))",
		"INSERT INTO workload.secret (v) VALUES (CONCAT('"+row[:7]+"', '"+row[7:]+"'))")
	c.writesMore(w, loadBeforeKill)

	victim := c.leader()
	term := c.view().Term
	c.KillMySQL(victim)
	c.KillDaemon(victim)
	newKey("second")
	c.start(victim)
	c.writesAfter(w, term)
	c.healthy()
	c.write("INSERT INTO workload.secret (v) VALUES (CONCAT('" + row[:7] + "', '" + row[7:] + "'))")
	c.writesMore(w, loadBeforeKill)

	locked := c.Nodes()[1]
	c.KillDaemon(locked)
	must(t, os.Rename(keys, keys+".away"))
	before := contents(t, raft(locked))
	c.start(locked)
	c.ends(locked, "cat: exit status 1")
	other, err := raftlog.AddKey(nil, "other")
	must(t, err)
	must(t, durable.WriteFile(keys, other, 0o600))
	c.start(locked)
	c.ends(locked, `it was written with the key "first"`)
	for name, b := range contents(t, raft(locked)) {
		if !bytes.Equal(before[name], b) {
			t.Errorf("%s was changed without the key", name)
		}
	}
	must(t, os.Rename(keys+".away", keys))
	c.start(locked)
	c.healthy()
	t.Logf("%s", c.check(w))

	held, err := raftlog.LoadKeys(t.Context(), keys, nil)
	must(t, err)
	for i, n := range c.Nodes() {
		c.StopDaemon(n)
		rep, err := raftlog.Verify(nil, raft(n), held)
		must(t, err)
		used := map[string]int{}
		for _, s := range rep.Segments {
			used[s.Key]++
		}
		shows := 0
		for _, b := range contents(t, raft(n)) {
			if bytes.Contains(b, []byte(row)) {
				shows++
			}
		}
		t.Logf("%s: entries %d to %d, segments by key %v; %d files show a row", n.Name, rep.First, rep.Last, used, shows)
		if plain := i == 2; plain != (shows > 0) || plain != (used[""] > 0) {
			t.Errorf("%s: %d files show a row; %v", n.Name, shows, used)
		}
		if n == victim && used["second"] == 0 {
			t.Errorf("%s: no segment has the new key: %v", n.Name, used)
		}
	}
	for _, n := range c.Nodes() {
		log, err := os.ReadFile(c.LogFile(n))
		must(t, err)
		text, err := os.ReadFile(keys)
		must(t, err)
		for _, word := range strings.Fields(string(text)) {
			if len(word) == 64 && bytes.Contains(log, []byte(word)) {
				t.Errorf("%s shows a key", c.LogFile(n))
			}
		}
	}
}

// contents of all files in a directory.
func contents(t *testing.T, dir string) map[string][]byte {
	t.Helper()
	list, err := os.ReadDir(dir)
	must(t, err)
	all := map[string][]byte{}
	for _, e := range list {
		b, err := os.ReadFile(filepath.Join(dir, e.Name()))
		must(t, err)
		all[e.Name()] = b
	}
	return all
}
