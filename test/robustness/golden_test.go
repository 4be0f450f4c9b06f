package robustness

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"flag"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"trireme/internal/config"
	"trireme/lab/testkit"
	"trireme/lab/verify"
)

var writeGolden = flag.Bool("golden", false, "keep the directory of a node of the last release, for those that come later to read")

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
	c := createShape(t, shape{nodes: 3, loggers: 1, binary: program, tune: func(n *config.Node) { n.Raft.LogMax = 64 * config.MiB }})
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
	s.exec("CREATE DATABASE large", "CREATE TABLE large.t (a LONGTEXT)", "INSERT INTO large.t VALUES (REPEAT('a', 2500000))")
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
