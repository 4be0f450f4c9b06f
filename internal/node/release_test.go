package node

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"trireme/internal/base/config"
	"trireme/internal/core/ledger"
	"trireme/internal/core/raftlog"
	"trireme/internal/node/recovery"
)

// releaseSays is what one node of a release said of itself, as this version reads it. It was written down when the
// release was made.
type releaseSays struct {
	Identity     config.Identity
	SettingsFile string // the addresses that the node's own settings name
	Settings     uint64 // version of the cluster settings
	Members      []string
	Local        localState
	Events       []string // kinds of the history, each once
	First, Last  uint64
	Term, Commit uint64
	GTIDs        string
	Kinds        map[string]int       // entries
	Classes      map[ledger.Class]int // transactions, and runs of plain ones
}

// TestReleases: a node's directory of each release, all but its mysqld's data and its keys, is read, and says what it
// said. `make golden` adds those of the last release.
func TestReleases(t *testing.T) {
	list, err := os.ReadFile("../../lab/testkit/releases")
	if err != nil {
		t.Fatal(err)
	}
	releases := 0
	for line := range strings.Lines(string(list)) {
		f := strings.Fields(line)
		if len(f) != 2 || f[0] == "#" {
			continue
		}
		releases++
		dir := filepath.Join("testdata/golden/releases", f[0])
		archives, err := filepath.Glob(filepath.Join(dir, "*.tar.gz"))
		if err != nil || len(archives) == 0 {
			t.Errorf("there is no directory of a node in %s: run make golden (%v)", dir, err)
		}
		for _, a := range archives {
			t.Run(f[0]+"/"+filepath.Base(a), func(t *testing.T) { readRelease(t, a) })
		}
	}
	if releases == 0 {
		t.Error("no releases are listed")
	}
}

func readRelease(t *testing.T, archive string) {
	dir := t.TempDir()
	if err := unpack(archive, dir); err != nil {
		t.Fatal(err)
	}
	got, err := sayRelease(dir)
	if err != nil {
		t.Fatal(err)
	}
	b, err := json.MarshalIndent(got, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	path := strings.TrimSuffix(archive, ".tar.gz") + ".json"
	text, err := os.ReadFile(path)
	if *update && errors.Is(err, fs.ErrNotExist) {
		text, err = b, os.WriteFile(path, append(b, '\n'), 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
	var want, again releaseSays // both as JSON has them
	if err := errors.Join(json.Unmarshal(text, &want), json.Unmarshal(b, &again)); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(again, want) {
		t.Errorf("read as\n%s\nand when it was released as\n%s", b, text)
	}
}

// unpack writes the files of an archive below dir.
func unpack(archive, dir string) error {
	b, err := os.ReadFile(archive)
	if err != nil {
		return err
	}
	z, err := gzip.NewReader(bytes.NewReader(b))
	if err != nil {
		return err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		content, err := io.ReadAll(r)
		if err == nil {
			err = errors.Join(root.MkdirAll(filepath.Dir(h.Name), 0o700), root.WriteFile(h.Name, content, 0o600))
		}
		if err != nil {
			return err
		}
	}
}

// sayRelease reads a node's directory with all that reads it when a node starts, and its log to the end.
func sayRelease(dir string) (s releaseSays, err error) {
	cfg, err := config.Load(filepath.Join(dir, config.NodeFileName))
	if err != nil {
		return s, err
	}
	s.SettingsFile = strings.Join([]string{cfg.Cluster, cfg.Name, cfg.Dir}, " ")
	if s.Identity, err = config.LoadIdentity(dir); err != nil {
		return s, err
	}
	if _, err := config.LoadSecrets(dir); err != nil {
		return s, err
	}
	c, err := config.LoadCluster(dir)
	if err != nil {
		return s, err
	}
	s.Settings, s.Members = c.Version, c.Names()
	local, err := openLocalFile(dir)
	if err != nil {
		return s, err
	}
	s.Local = *local.get()
	if _, err := recovery.Load(raftlog.OSFS{}, dir); err != nil {
		return s, err
	}
	for _, e := range goldenHistory(dir).All() {
		if !slices.Contains(s.Events, e.Kind) {
			s.Events = append(s.Events, e.Kind)
		}
	}
	return s, s.readLog(filepath.Join(dir, "raft"), c.ClusterID)
}

// readLog reads each byte, and opens the log as a node does.
func (s *releaseSays) readLog(dir string, cluster uint64) error {
	rep, err := raftlog.Verify(raftlog.OSFS{}, dir, nil)
	if err != nil {
		return err
	}
	s.First, s.Last, s.Term, s.Commit = rep.First, rep.Last, rep.Term, rep.Commit
	s.GTIDs, s.Kinds, s.Classes = rep.GTIDs.String(), map[string]int{}, map[ledger.Class]int{}
	var scan ledger.Scanner
	if err := raftlog.Walk(raftlog.OSFS{}, dir, nil, func(e *raftlog.EntryInfo) error {
		if e.Meta == nil {
			s.Kinds[e.Type.String()]++
			return nil
		}
		s.Kinds[e.Meta.Kind.String()]++
		if e.Meta.Kind == raftlog.Settings {
			_, err := config.ParseCluster(e.Events)
			return err
		}
		return scan.Entry(e.Meta, e.Index, e.Events, func(x ledger.Txn) error {
			s.Classes[x.Class]++
			return nil
		})
	}); err != nil {
		return err
	}
	l, err := raftlog.Open(raftlog.Options{Dir: dir, Cluster: cluster, NodeID: s.Identity.ID})
	if err != nil {
		return err
	}
	return l.Close()
}
