package config

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"time"
)

// The files in testdata/golden are as released versions wrote them, and are read forever (docs/format/README.md).
const newest = "testdata/golden/v2"

var update = flag.Bool("update", false,
	"write the files of a format that is not released yet; those that are there are kept")

// golden gives one of them.
func golden(t testing.TB, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(newest, name))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func goldenCluster() *Cluster {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	member := func(id uint64, name, role string) Member {
		return Member{ID: id, Name: name, Role: role, Peer: name + ":7306", API: name + ":8008", MySQLHost: name,
			MySQLPort: 3306, RWPort: 6446, ROPort: 6447, Weight: 100, Zone: "a"}
	}
	db2, db3, db4 := member(2, "db2", RoleVoter), member(3, "db3", RoleLearner), member(4, "log1", RoleLogger)
	db2.MustAck, db2.Move, db2.Pending, db2.Removing = true, 4, true, true
	db4.MySQLHost, db4.MySQLPort, db4.Weight = "", 0, 0
	return &Cluster{Version: 9, Name: "prod", ClusterID: 0x0123456789abcdef, NextID: 6,
		Members: []Member{member(1, "db1", RoleVoter), db2, db3, db4},
		JoinTokens: []JoinToken{{ID: "0011223344556677", Hash: "aa", Name: "db5", Role: RoleLearner, Expires: at,
			Used: 5}},
		DisabledEvents: []string{"app.cleanup"}, Base: "3e11fa47-71ca-11e1-9e33-c80aa9429562:1-5", APITokenHash: "bb",
		FailbackMS: 60_000, Pause: &Pause{Since: at, Until: at.Add(time.Hour)}, CommitZones: 2, CommitGraceMS: 5000,
		Generation: &Generation{Number: 2, ID: 77, Source: 1, Base: 100, BaseTerm: 7, Commit: 90, Members: []uint64{1, 2},
			At: at, By: "root"},
		Disbanded: &Disbanded{At: at, Source: "db1"}}
}

var goldenIdentity = Identity{Cluster: "prod", ClusterID: 0x0123456789abcdef, Name: "db1", ID: 1, Role: RoleVoter,
	Bootstrap: true}

var goldenSecrets = Secrets{Admin: Account{"a", "1"}, Repl: Account{"r", "2"}, Feed: Account{"f", "3"},
	Clone: Account{"c", "4"}, APIToken: "t"}

// TestGoldenWritten: settings entries and the files of a node's directory do not change by accident.
func TestGoldenWritten(t *testing.T) {
	dir := t.TempDir()
	entry, err := goldenCluster().Marshal()
	if err != nil {
		t.Fatal(err)
	}
	if err := goldenIdentity.Save(dir); err != nil {
		t.Fatal(err)
	}
	if err := goldenSecrets.Save(dir); err != nil {
		t.Fatal(err)
	}
	files := map[string][]byte{"cluster.json": entry}
	for _, name := range []string{IdentityName, SecretsName} {
		if files[name], err = os.ReadFile(filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	for name, got := range files {
		path := filepath.Join(newest, name)
		want, err := os.ReadFile(path)
		if *update && os.IsNotExist(err) {
			if err = os.MkdirAll(newest, 0o755); err == nil {
				want, err = got, os.WriteFile(path, got, 0o644)
			}
		}
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("%s is not what %s holds: the format has changed; see docs/format/README.md\n%s", name, path, got)
		}
	}
}

// TestGoldenRead: what all released versions wrote says what it said.
func TestGoldenRead(t *testing.T) {
	versions, err := filepath.Glob("testdata/golden/v*")
	if err != nil || len(versions) == 0 {
		t.Fatal(versions, err)
	}
	for _, version := range versions {
		t.Run(filepath.Base(version), func(t *testing.T) {
			dir := t.TempDir()
			for _, name := range []string{"cluster.json", IdentityName, SecretsName} {
				b, err := os.ReadFile(filepath.Join(version, name))
				if err == nil {
					err = os.WriteFile(filepath.Join(dir, name), b, 0o600)
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			entry, err := os.ReadFile(filepath.Join(dir, "cluster.json"))
			if err != nil {
				t.Fatal(err)
			}
			if c, err := ParseCluster(entry); err != nil || !reflect.DeepEqual(c, goldenCluster()) {
				t.Errorf("settings: %+v, %v", c, err)
			}
			if id, err := LoadIdentity(dir); err != nil || id != goldenIdentity {
				t.Errorf("identity: %+v, %v", id, err)
			}
			if s, err := LoadSecrets(dir); err != nil || s != goldenSecrets {
				t.Errorf("secrets: %v", err)
			}
		})
	}
}

// TestNewerSettings: what a newer version wrote and an older one may ignore is still there when an older leader has
// changed something else; what it must not ignore stops it.
func TestNewerSettings(t *testing.T) {
	entry := golden(t, "cluster.json")
	added := 0
	for _, at := range []string{`{`, `{"id":2,`, `"pause":{`, `"join_tokens":[{`, `"generation":{`, `"disbanded":{`} {
		key := fmt.Sprintf(`"later_%d":{"x":[%d]},`, added, added)
		if !bytes.Contains(entry, []byte(at)) {
			t.Fatalf("no %s in %s", at, entry)
		}
		entry = bytes.Replace(entry, []byte(at), []byte(at+key), 1)
		added++
	}
	c, err := ParseCluster(entry)
	if err != nil {
		t.Fatal(err)
	}
	next := c.Clone()
	next.Version++
	next.Members[1].Weight++
	next.Members = append(next.Members, Member{ID: 5, Name: "db5", Role: RoleLearner, Peer: "db5:1", API: "db5:2",
		MySQLHost: "db5", MySQLPort: 3306})
	out, err := next.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	if got := bytes.Count(out, []byte("later_")); got != added {
		t.Errorf("%d keys of %d are left: %s", got, added, out)
	}
	again, err := ParseCluster(out)
	if err != nil || !reflect.DeepEqual(again, next) {
		t.Errorf("%+v, %v", again, err)
	}
	newer := bytes.Replace(entry, []byte(`{`), []byte(`{"needs":4,"members":"of another form",`), 1)
	if _, err := ParseCluster(newer); !errors.Is(err, ErrNewer) {
		t.Errorf("settings that need a newer version: %v", err)
	}
}

// TestNewerSecrets: a new password of one account does not erase what a newer version has added to the file.
func TestNewerSecrets(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, SecretsName)
	text := bytes.Replace(golden(t, SecretsName), []byte("{"), []byte(`{"later": {"user": "x"}, `), 1)
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := LoadSecrets(dir)
	if err != nil {
		t.Fatal(err)
	}
	s.Clone.Password = NewToken()
	if err := s.Save(dir); err != nil {
		t.Fatal(err)
	}
	again, err := LoadSecrets(dir)
	if b, _ := os.ReadFile(path); err != nil || again != s || bytes.Count(b, []byte("later")) != 1 {
		t.Errorf("%v: %s", err, b)
	}
}
