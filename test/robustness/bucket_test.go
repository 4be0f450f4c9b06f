package robustness

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"trireme/internal/base/config"
	"trireme/internal/ops/demo"
)

// gateway is a real S3 service over a directory.
type gateway struct {
	t    *testing.T
	addr string
	cmd  demo.Command
	proc *demo.Process
}

// bucket starts the service with an empty bucket "kept", and lets trireme's commands reach it.
func bucket(t *testing.T) *gateway {
	t.Helper()
	program := os.Getenv("VERSITYGW")
	if program == "" {
		cannot(t, "there is no S3 service: VERSITYGW=$(scripts/versitygw.sh)")
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	addr := l.Addr().String()
	must(t, l.Close())
	root, aux := t.TempDir(), t.TempDir()
	must(t, os.Mkdir(filepath.Join(root, "kept"), 0o755))
	t.Setenv("AWS_ACCESS_KEY_ID", "one")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "two")
	g := &gateway{t: t, addr: addr,
		cmd: demo.Command{Path: program,
			Args: []string{"--port", addr, "posix", "--sidecar", filepath.Join(aux, "sidecar"), root}, Dir: aux,
			Env: append(os.Environ(), "ROOT_ACCESS_KEY=one", "ROOT_SECRET_KEY=two"), LogFile: filepath.Join(aux, "log")}}
	must(t, os.Mkdir(filepath.Join(aux, "sidecar"), 0o755))
	g.start()
	t.Cleanup(func() { g.proc.Kill() })
	return g
}

func (g *gateway) start() {
	g.t.Helper()
	var err error
	g.proc, err = demo.StartProcess(g.cmd)
	must(g.t, err)
	eventually(g.t, time.Minute, "the S3 service", func() error {
		if !g.proc.Alive() {
			said, _ := os.ReadFile(g.cmd.LogFile)
			g.t.Fatalf("it has ended: %s", said)
		}
		conn, err := net.Dial("tcp", g.addr)
		if err == nil {
			conn.Close()
		}
		return err
	})
}

// place is a prefix of the bucket, and the flags with it.
func (g *gateway) place(flags ...string) []string {
	return append([]string{"s3://kept/shop", "--s3-endpoint", "http://" + g.addr, "--s3-path-style"}, flags...)
}

// serviceAway is longer than the archive goes without storing a segment while there are commits.
const serviceAway = 6 * time.Second

// TestBackupBucket keeps an encrypted backup in the bucket of a real S3 service, which is killed and comes back while
// the log is archived, and restores a moment out of it: a stock mysqld with exactly the rows that were committed then.
func TestBackupBucket(t *testing.T) {
	if !soak() {
		t.Skip("a long run: TRIREME_SOAK=1")
	}
	began := time.Now()
	step := func(what string) { t.Logf("%s: after %v", what, time.Since(began).Round(100*time.Millisecond)) }
	g := bucket(t)
	c, follower, w, a := kept(t)
	w.run("CREATE TABLE IF NOT EXISTS kept.u (a INT PRIMARY KEY)", "REPLACE INTO kept.u VALUES (7)")
	key := filepath.Join(a.dir, "key")
	a.done("backup", "new-key", key)
	place := g.place("--key-file", key)
	f := &archiving{t: t, args: append(append([]string{"backup", "--to"}, place...), "--follow", "--config",
		filepath.Join(follower.Dir, config.NodeFileName))}
	f.start()
	// reached is how many copies there are, and up to which entry the log is archived.
	reached := func() (copies int, index uint64, err error) {
		var have struct {
			Bases   []struct{} `json:"bases"`
			Reached struct {
				Index uint64 `json:"index"`
			} `json:"reached"`
		}
		out, code := a.cli(append([]string{"backup", "list", "--json"}, place...)...)
		if code != 0 {
			return 0, 0, fmt.Errorf("exit code %d: %s", code, out)
		}
		err = json.Unmarshal([]byte(out[strings.Index(out, "{"):]), &have)
		return len(have.Bases), have.Reached.Index, err
	}
	writes := 0
	eventually(t, 3*time.Minute, "a copy while rows are written", func() error {
		for range 20 {
			writes++
			w.run("INSERT INTO kept.t (v) VALUES (REPEAT('x', 1000))")
		}
		f.keep()
		if copies, _, err := reached(); err != nil || copies != 1 {
			return fmt.Errorf("%d copies, %w", copies, err)
		}
		return nil
	})
	step(fmt.Sprintf("a copy, %d rows", writes))

	g.proc.Kill()
	for away := time.Now(); time.Since(away) < serviceAway; { // nothing waits for the archive
		w.run("INSERT INTO kept.t (v) VALUES (REPEAT('y', 1000))")
	}
	moment, want := w.moment()
	w.run("DELETE FROM kept.t WHERE id < 5", "DROP TABLE IF EXISTS kept.u")
	last := c.view().CommitIndex
	g.start()
	eventually(t, healLimit, "the archive goes on", func() error {
		f.keep()
		if _, index, err := reached(); err != nil || index < last {
			return fmt.Errorf("entry %d of %d, %w", index, last, err)
		}
		return nil
	})
	step("archived beyond a service that was away")
	said := f.stop()
	if t.Log(said); !strings.Contains(said, "archiving goes on") {
		t.Error("the archive has not noticed that the service was away")
	}
	w.run("DROP DATABASE IF EXISTS kept")
	a.done(append([]string{"backup", "verify"}, place...)...)

	to := filepath.Join(a.dir, "restored")
	t.Log(a.done(append(append([]string{"restore", "--from"}, place...), "--to-gtid", moment.String(), "--data", to,
		"--port", fmt.Sprint(a.base+8))...))
	step("a restored server")
	a.restored(to, want, moment)
	step("a look at it")
}
