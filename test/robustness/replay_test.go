package robustness

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"trireme/internal/ops/demo"
	"trireme/lab/needs"
	"trireme/lab/testkit"
	"trireme/lab/verify"
)

// plainServer starts an empty mysqld that has nothing to do with Trireme and returns its socket and a login to it.
func plainServer(t *testing.T) (socket string, l verify.Login) {
	t.Helper()
	needMySQL(t)
	s := testkit.StartServer(t, "--partial-revokes=ON")
	s.Exec("CREATE USER check_user@'%' IDENTIFIED BY 'check'")
	s.Exec("GRANT ALL ON *.* TO check_user@'%' WITH GRANT OPTION")
	s.Exec("RESET BINARY LOGS AND GTIDS")
	return s.Socket(), verify.Login{Addr: verify.Fixed(s.Addr()), User: "check_user", Password: "check",
		StatementTimeout: time.Minute}
}

// TestSegmentsReplay prints the raft log of a node with the vendor's mysqlbinlog and replays it into an empty server:
// the tables must have the same checksums.
func TestSegmentsReplay(t *testing.T) {
	t.Parallel()
	c := create(t, 1, 2)
	w := c.load(verify.Config{Writers: 8, Mixed: true, Rate: steady()})
	c.writesMore(w, 300)
	t.Logf("%s", c.check(w))
	node := c.DataNodes()[0]
	segments := segmentsOf(t, node)
	socket, login := plainServer(t)
	grantors(t, login)
	ctx, cancel := context.WithTimeout(t.Context(), checkLimit)
	defer cancel()
	read := exec.CommandContext(ctx, needs.Tool(t, "mysqlbinlog"), append([]string{"--no-defaults"}, segments...)...)
	write := exec.CommandContext(ctx, needs.Tool(t, "mysql"), "--no-defaults", "--user=root", "--socket="+socket)
	var readErr, writeErr strings.Builder
	var err error
	write.Stdin, err = read.StdoutPipe()
	must(t, err)
	read.Stderr, write.Stderr = &readErr, &writeErr
	must(t, read.Start())
	out := write.Run()
	if out != nil {
		_ = read.Process.Kill() // its output is not read any more
	}
	if err := errors.Join(out, read.Wait()); err != nil {
		t.Fatalf("mysqlbinlog %s | mysql: %v\n%s\n%s", strings.Join(segments, " "), err, readErr.String(), writeErr.String())
	}
	nodes, err := c.Endpoints()
	must(t, err)
	defer verify.CloseEndpoints(nodes)
	plain, err := login.Open("")
	must(t, err)
	defer plain.Close()
	want, err := verify.Checksums(ctx, nodes[0].DB)
	must(t, err)
	got, err := verify.Checksums(ctx, plain)
	must(t, err)
	problems := verify.JudgeEqual("checksum", map[string]map[string]string{"cluster": want, "replayed": got})
	for _, p := range problems {
		t.Error(p)
	}
	t.Logf("%d segments replayed, %d tables compared, %d differ", len(segments), len(want), len(problems))
	if len(want) == 0 {
		t.Error("nothing was compared")
	}
}

// grantors makes the accounts by which GRANT statements in the log say that they were granted (AS 'user'@'host').
func grantors(t *testing.T, login verify.Login) {
	t.Helper()
	db, err := login.Open("")
	must(t, err)
	defer db.Close()
	conn, err := db.Conn(t.Context())
	must(t, err)
	defer conn.Close()
	for _, q := range []string{"SET sql_log_bin = 0", "CREATE USER trireme_admin@localhost",
		"GRANT ALL ON *.* TO trireme_admin@localhost WITH GRANT OPTION"} {
		_, err := conn.ExecContext(t.Context(), q)
		must(t, err)
	}
}

// segmentsOf lists a node's log segments in order.
func segmentsOf(t *testing.T, n *demo.Node) []string {
	t.Helper()
	var out []string
	must(t, filepath.WalkDir(filepath.Join(n.Dir, "raft"), func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		defer f.Close()
		magic := make([]byte, 4)
		if n, _ := f.Read(magic); n == 4 && string(magic) == "\xfebin" {
			out = append(out, path)
		}
		return nil
	}))
	if len(out) == 0 {
		t.Fatalf("%s has no log segments below raft/", n.Name)
	}
	slices.Sort(out)
	return out
}

// TestCheckerSeesDamage damages the data of a real cluster in ways that the cluster itself cannot notice. A checker
// that finds nothing then would make all other tests worthless.
func TestCheckerSeesDamage(t *testing.T) {
	t.Parallel()
	c := lease(t)
	w := c.load(verify.Config{Database: "damage", Writers: 4, Tables: 2})
	c.writesMore(w, 100)
	if r := c.check(w); r.Counts.Acked < 100 {
		t.Fatalf("%s", r)
	}
	s := c.session(c.leader())
	s.exec("DELETE FROM damage.w0 ORDER BY id LIMIT 1",
		"INSERT INTO damage.w1 (writer, seq, payload) SELECT writer, seq, payload FROM damage.w1 ORDER BY id LIMIT 1",
		"INSERT INTO damage.w0 (writer, seq, payload) VALUES (0, 1000000, 'never written')")
	s.close()
	ctx, cancel := context.WithTimeout(t.Context(), checkLimit)
	defer cancel()
	nodes, err := c.Endpoints()
	must(t, err)
	defer verify.CloseEndpoints(nodes)
	r, err := w.Check(ctx, nodes)
	must(t, err)
	found := map[verify.Kind]int{}
	for _, p := range r.Problems {
		found[p.Kind]++
	}
	if found[verify.Lost]+found[verify.Torn] != len(nodes) || found[verify.Doubled] != len(nodes) ||
		found[verify.Resurrected] != len(nodes) {
		t.Errorf("a row deleted, one doubled and one made up on %d nodes; found: %s", len(nodes), r)
	}
}
