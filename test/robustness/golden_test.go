package robustness

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"database/sql"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"trireme/internal/api"
	"trireme/internal/base/config"
	"trireme/internal/base/pki"
	"trireme/internal/mysql/gtid"
	"trireme/internal/mysql/mysqld"
	"trireme/internal/ops/demo"
	"trireme/internal/ops/setup"
	"trireme/lab/testkit"
	"trireme/lab/verify"
)

var writeGolden = flag.Bool("golden", false,
	"keep the directory of a node of the last release, for those that come later to read")

const goldenReleases = "../../internal/node/testdata/golden/releases"

// TestWriteGolden is `make golden`: a cluster of the last release works a little, and the directory of a node is kept,
// all but mysqld's data and what is secret. internal/node TestReleases reads them.
func TestWriteGolden(t *testing.T) {
	t.Parallel()
	if !*writeGolden {
		t.Skip("make golden writes files for later versions")
	}
	program, release := testkit.Previous(t)
	dir := filepath.Join(goldenReleases, release.Name)
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("%s is there already, and is never written again (%v)", dir, err)
	}
	c := createShape(t, shape{nodes: 3, loggers: 1, binary: program,
		tune: func(n *config.Node) { n.Raft.LogMax = 64 * config.MiB }})
	leader := c.healthy()
	w := c.load(verify.Config{Writers: 2, Rate: 10, Mixed: true})
	c.writesMore(w, 40)
	c.says(leader, 0, "config edit transaction_warn=32MiB", "32MiB")
	was := c.view().Term
	c.KillDaemon(leader)
	c.failedOver(was)
	c.writesMore(w, 20)
	c.start(leader)
	c.healthy()
	c.lead(leader)
	s := c.session(leader)
	s.exec("CREATE DATABASE large", "CREATE TABLE large.t (a LONGTEXT)",
		"INSERT INTO large.t VALUES (REPEAT('a', 2500000))")
	s.close()
	c.check(w)
	for _, n := range c.Nodes() {
		if !c.StopDaemon(n) {
			t.Fatalf("the daemon of %s does not end", n.Name)
		}
	}
	must(t, os.MkdirAll(dir, 0o755))
	must(t, pack(leader.Dir, filepath.Join(dir, leader.Name+".tar.gz")))
}

// pack writes what a later version reads of a node's directory.
func pack(dir, archive string) error {
	var b bytes.Buffer
	z, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	if err != nil {
		return err
	}
	w := tar.NewWriter(z)
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		name, err2 := filepath.Rel(dir, path)
		if err = errors.Join(err, err2); err != nil {
			return err
		}
		if d.IsDir() {
			if name == "mysql" || name == "tls" {
				return filepath.SkipDir
			}
			return nil
		}
		if !d.Type().IsRegular() || strings.HasSuffix(name, ".lock") {
			return nil
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o600, Size: int64(len(content))}); err != nil {
			return err
		}
		_, err = w.Write(content)
		return err
	})
	if err := errors.Join(err, w.Close(), z.Close()); err != nil {
		return err
	}
	return os.WriteFile(archive, b.Bytes(), 0o644)
}

// TestGoldenDirectory starts a daemon of this version on the directory that a node of each release has left. Its
// mysqld's data and the other nodes are not there: its operator makes a cluster of it alone, and a new mysqld executes
// the whole log of that release, judged as it is.
func TestGoldenDirectory(t *testing.T) {
	t.Parallel()
	needMySQL(t)
	archives, err := filepath.Glob(filepath.Join(goldenReleases, "*", "n1.tar.gz"))
	must(t, err)
	if len(archives) == 0 {
		t.Fatal("there is no directory of a release")
	}
	for _, a := range archives {
		t.Run(filepath.Base(filepath.Dir(a)), func(t *testing.T) { startGolden(t, a) })
	}
}

func startGolden(t *testing.T, archive string) {
	dir := kit.NewDir()
	t.Cleanup(func() { os.RemoveAll(dir) })
	must(t, unpack(archive, dir))
	var said struct {
		GTIDs        string
		SettingsFile string
		Last         uint64
	}
	b, err := os.ReadFile(strings.TrimSuffix(archive, ".tar.gz") + ".json")
	must(t, err)
	must(t, json.Unmarshal(b, &said))

	// The node is elsewhere now.
	base, err := demo.FreePortBase(1)
	must(t, err)
	file := filepath.Join(dir, config.NodeFileName)
	before, err := config.Load(file)
	must(t, err)
	text, err := os.ReadFile(file)
	must(t, err)
	changes := []string{before.Dir, dir}
	for i := range 7 {
		changes = append(changes, fmt.Sprint(before.MySQL.Port+i), fmt.Sprint(base+i))
	}
	must(t, os.WriteFile(file, []byte(strings.NewReplacer(changes...).Replace(string(text))), 0o600))
	cfg, err := config.Load(file)
	must(t, err)
	id, err := config.LoadIdentity(dir)
	must(t, err)
	secrets, err := config.LoadSecrets(dir)
	must(t, err)

	// Keys were not kept.
	ca, err := pki.NewCA(cfg.Cluster, time.Now())
	must(t, err)
	bundle, err := ca.Issue(pki.NodeCert{Name: cfg.Name, ID: id.ID, Hosts: setup.Hosts(cfg.Member(id.ID, id.Role))},
		time.Now())
	must(t, err)
	must(t, os.MkdirAll(cfg.TLSDir(), 0o700))
	must(t, errors.Join(ca.Save(cfg.TLSDir()), bundle.Save(cfg.TLSDir())))

	log, err := os.Create(filepath.Join(dir, "daemon.out"))
	must(t, err)
	defer log.Close()
	daemon := exec.Command(testkit.Program(t, testkit.Trireme), "node", "--config", file)
	daemon.Stdout, daemon.Stderr = log, log
	must(t, daemon.Start())
	t.Cleanup(func() {
		_ = daemon.Process.Signal(os.Interrupt)
		_ = daemon.Wait()
		if text, err := os.ReadFile(log.Name()); t.Failed() && err == nil {
			t.Logf("%s", text)
		}
	})
	trust, err := bundle.NodeClientTLS()
	must(t, err)
	client := api.NewClient(cfg.API.Advertise, secrets.APIToken, trust) // as the command does on the node's own host
	defer client.Close()
	var rep api.ForceReport
	eventually(t, healLimit, "the node has opened its log and knows no leader", func() (err error) {
		rep, err = api.ForceQuorum.Ask(t.Context(), client, api.ForceRequest{})
		if err == nil && rep.Problem != "" {
			err = errors.New(rep.Problem)
		}
		return err
	})
	if rep.LastIndex < said.Last {
		t.Errorf("its log ends at %d, and ended at %d", rep.LastIndex, said.Last)
	}
	rep, err = api.ForceQuorum.Ask(t.Context(), client, api.ForceRequest{Confirm: rep.Term, By: "a test"})
	must(t, err)
	eventually(t, healLimit, "it leads and takes writes", func() error {
		ok, why, err := client.Check(t.Context(), "/primary")
		if err == nil && !ok {
			err = fmt.Errorf("%v", why)
		}
		return err
	})
	secrets, err = config.LoadSecrets(dir) // it has made itself another password
	must(t, err)
	admin := mysql.NewConfig()
	admin.User, admin.Passwd, admin.Net, admin.Addr = secrets.Admin.User, secrets.Admin.Password,
		"unix", mysqld.Config{Dir: cfg.MySQLDir()}.Socket()
	db, err := sql.Open("mysql", admin.FormatDSN())
	must(t, err)
	defer db.Close()
	var executed string
	var large, tables int
	must(t,
		db.QueryRow("SELECT @@GLOBAL.gtid_executed, (SELECT LENGTH(a) FROM large.t), (SELECT COUNT(*) FROM information_schema.tables WHERE table_name = 'accounts')").Scan(&executed, &large, &tables))
	has, err := gtid.ParseSet(strings.Join(strings.Fields(executed), ""))
	must(t, err)
	want, err := gtid.ParseSet(strings.Join(strings.Fields(said.GTIDs), ""))
	must(t, err)
	if missing := want.Subtract(has); !missing.Empty() || large != 2500000 || tables == 0 {
		t.Errorf("%v of the log is missing; the large row has %d bytes, there are %d tables of a bank", missing, large,
			tables)
	}
	_, err = db.Exec("INSERT INTO large.t VALUES ('written by this version')")
	must(t, err)
}

// unpack writes the files of an archive below dir.
func unpack(archive, dir string) error {
	f, err := os.Open(archive)
	if err != nil {
		return err
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		return err
	}
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		path := filepath.Join(dir, filepath.FromSlash(h.Name))
		content, err := io.ReadAll(r)
		if err == nil {
			err = errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, content, 0o600))
		}
		if err != nil {
			return err
		}
	}
}
