package setup

import (
	"context"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"trireme/internal/api"
	"trireme/internal/base/config"
	"trireme/internal/base/pki"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func settings(name, dir string, port int) config.Node {
	at := func(i int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port+i)) }
	n := config.Default()
	n.Cluster, n.Name, n.Dir = "c1", name, dir
	n.Peer.Listen, n.Peer.Advertise = at(0), at(0)
	n.API = config.API{Listen: at(1), Advertise: at(1)}
	n.MySQL.Bind, n.MySQL.Port, n.MySQL.Options = "127.0.0.1", port+2, map[string]string{"innodb_buffer_pool_size": "64M"}
	n.Router.Bind, n.Router.RWPort, n.Router.ROPort, n.Router.SplitPort, n.Router.StreamPort = "127.0.0.1", port+3, port+4,
		port+5, port+6
	return n
}

func mustInit(t *testing.T) (config.Node, InitResult) {
	t.Helper()
	n := settings("n1", filepath.Join(t.TempDir(), "deep", "n1"), 21000)
	res, err := Init(InitOptions{Node: n, CredentialDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	return n, res
}

func TestInit(t *testing.T) {
	n, res := mustInit(t)

	loaded, err := config.Load(res.ConfigFile)
	if err != nil {
		t.Fatal(err)
	}
	n.File = res.ConfigFile
	if !reflect.DeepEqual(loaded, n) {
		t.Errorf("settings read back\n%+v\nwritten\n%+v", loaded, n)
	}
	id, err := config.LoadIdentity(n.Dir)
	if err != nil || !id.Bootstrap || id.ID != 1 || id.Name != "n1" || id.Role != config.RoleVoter ||
		id.ClusterID>>44 != 0 {
		t.Errorf("identity %+v, %v", id, err)
	}
	c, err := config.LoadCluster(n.Dir)
	if err != nil || c.ClusterID != id.ClusterID || c.NextID != 2 || len(c.Members) != 1 ||
		c.Members[0].MySQLPort != 21002 {
		t.Errorf("cluster %+v, %v", c, err)
	}
	if _, err := config.LoadSecrets(n.Dir); err != nil {
		t.Error(err)
	}
	bundle, err := pki.LoadBundle(n.TLSDir())
	if err != nil || bundle.Identity() != (pki.Identity{Cluster: "c1", ID: 1, Name: "n1"}) {
		t.Errorf("bundle %v", err)
	}
	if _, err := pki.LoadCA(n.TLSDir()); err != nil {
		t.Error(err)
	}
	cred, err := LoadCredential(res.CredentialFile)
	if err != nil || !reflect.DeepEqual(cred, res.Credential) || !pki.TokenMatches(cred.Token, c.APITokenHash) ||
		cred.CA != string(bundle.CAPEM()) {
		t.Errorf("credential %+v, %v", cred, err)
	}
	for _, path := range []string{n.Dir, n.TLSDir(), n.SecretsFile(), n.IdentityFile(), res.ConfigFile,
		res.CredentialFile} {
		st, err := os.Stat(path)
		if err != nil || st.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s: mode %v, %v", path, st.Mode(), err)
		}
	}
}

func TestRefusedDirectories(t *testing.T) {
	n, _ := mustInit(t)
	occupied := t.TempDir()
	write(t, filepath.Join(occupied, "notes.txt"))
	datadir := t.TempDir()
	write(t, filepath.Join(datadir, "ibdata1"))
	plain := filepath.Join(t.TempDir(), "file")
	write(t, plain)
	for dir, want := range map[string]string{
		n.Dir: `belongs to node "n1" of cluster "c1" already; start it: ` + "`trireme node --config " + n.Dir +
			"/trireme.toml`; to make another node in its place, first move " + n.Dir + " away",
		occupied:      "is not empty",
		datadir:       "data directory of a MySQL server",
		plain:         "not a directory",
		"relative/to": "absolute",
	} {
		_, err := Init(InitOptions{Node: settings("n9", dir, 21000), CredentialDir: t.TempDir()})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", dir, err, want)
		}
	}
	if _, err := os.Stat(filepath.Join(occupied, "notes.txt")); err != nil {
		t.Error("a refused directory was changed")
	}
	if _, err := config.LoadIdentity(n.Dir); err != nil {
		t.Error("a refused directory was changed")
	}
	fresh := t.TempDir() // a new file system's root
	if err := os.Mkdir(filepath.Join(fresh, "lost+found"), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := Init(InitOptions{Node: settings("n9", fresh, 21000), CredentialDir: t.TempDir()}); err != nil {
		t.Error(err)
	}
}

// TestNotAllowed: an account that may not make the directory is told what to do.
func TestNotAllowed(t *testing.T) {
	if err := refused("making it", &fs.PathError{Op: "mkdir", Path: "/x", Err: fs.ErrPermission}); err == nil ||
		err.Error() != "making it: mkdir /x: permission denied; "+
			"run this as root, or give a directory of your own with --dir" {
		t.Error(err)
	}
	if err := refused("making it", fs.ErrExist); err.Error() != "making it: file already exists" {
		t.Error(err)
	}
}

// TestBusyPort: a new node whose port something else has is told of it, with what it most often is.
func TestBusyPort(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	n := settings("n1", t.TempDir(), 0)
	n.MySQL.Bind, n.MySQL.Port = "127.0.0.1", l.Addr().(*net.TCPAddr).Port
	n.Peer.Listen, n.API.Listen = "127.0.0.1:0", "127.0.0.1:0"
	if err := BusyPort(n); err == nil || !strings.Contains(err.Error(), "systemctl disable --now mysql") {
		t.Error(err)
	}
	_ = l.Close()
	if err := BusyPort(n); err != nil {
		t.Error(err)
	}
}

// TestTwice: whose init was repeated is told of the node, not of the credential that the first one left.
func TestTwice(t *testing.T) {
	dir := t.TempDir() + "/n1"
	opts := InitOptions{Node: settings("n1", dir, 21000), CredentialDir: t.TempDir()}
	if _, err := Init(opts); err != nil {
		t.Fatal(err)
	}
	if _, err := Init(opts); err == nil || !strings.Contains(err.Error(), "belongs to node") {
		t.Error(err)
	}
	opts.Node = settings("n1", t.TempDir()+"/n1", 21000)
	if _, err := Init(opts); err == nil || !strings.Contains(err.Error(), "if that cluster is gone, move the file away") {
		t.Error(err)
	}
	if _, err := os.Stat(opts.Node.Dir); err == nil {
		t.Error("a refused directory was made")
	}
}

func write(t *testing.T, path string) {
	t.Helper()
	if err := os.WriteFile(path, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestInitLeavesNothingHalfMade(t *testing.T) {
	// The credential's folder cannot be made: a file is in the way.
	blocked := filepath.Join(t.TempDir(), "file")
	write(t, blocked)
	parent := t.TempDir()
	_, err := Init(InitOptions{Node: settings("n1", filepath.Join(parent, "a", "b"), 21000),
		CredentialDir: filepath.Join(blocked, "x")})
	if err == nil {
		t.Fatal("no error")
	}
	empty(t, parent)
	existing := t.TempDir()
	if _, err := Init(InitOptions{Node: settings("n1", existing, 21000), CredentialDir: filepath.Join(blocked, "x")}); err == nil {
		t.Fatal("no error")
	}
	empty(t, existing)
	if _, err := Init(InitOptions{Node: settings("n1", filepath.Join(parent, "c"), 21000), Role: config.RoleLogger}); err == nil {
		t.Fatal("a logger made a cluster")
	}
	bad := settings("n1", filepath.Join(parent, "c"), 21000)
	bad.MySQL.Port = bad.Router.RWPort
	if _, err := Init(InitOptions{Node: bad}); err == nil {
		t.Fatal("no error")
	}
	empty(t, parent)
}

func empty(t *testing.T, dir string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 0 {
		t.Errorf("%s is not as it was: %v, %v", dir, entries, err)
	}
}

// leader answers Join as a node does, with the real CA and settings of a directory made by Init.
type leader struct {
	api.Backend // what a test does not ask for
	ca          *pki.CA
	secrets     config.Secrets
	record      pki.JoinRecord
	cluster     *config.Cluster
	spoil       func(*api.JoinResult)
}

func (l *leader) Join(_ context.Context, req api.JoinRequest) (api.JoinResult, error) {
	token, err := pki.ParseJoinToken(req.Token)
	if err != nil {
		return api.JoinResult{}, api.Errorf(api.KindInvalid, "%v", err)
	}
	if err := l.record.Verify(token.Secret(), time.Now()); err != nil {
		return api.JoinResult{}, api.Errorf(api.KindUnauthorized, "%v", err).With("make a new one with `trireme add`")
	}
	l.record.Used = true
	m := req.Member
	m.ID = l.cluster.NextID
	cert, err := l.ca.SignCSR(req.CSR, pki.NodeCert{Name: m.Name, ID: m.ID, Hosts: Hosts(m)}, time.Now())
	if err != nil {
		return api.JoinResult{}, err
	}
	key, err := l.ca.KeyPEM()
	if err != nil {
		return api.JoinResult{}, err
	}
	next := l.cluster.Clone()
	next.NextID++
	next.Version++
	next.Members = append(next.Members, m)
	res := api.JoinResult{ID: m.ID, Cert: cert, CA: l.ca.CertPEM(), CAKey: key, Cluster: next, Secrets: l.secrets}
	if l.spoil != nil {
		l.spoil(&res)
	}
	return res, nil
}

func (l *leader) Leader() api.Leader           { return api.Leader{Name: "n1", Self: true} }
func (l *leader) Settings() *config.Cluster    { return l.cluster }
func (l *leader) Metrics() prometheus.Gatherer { return prometheus.NewRegistry() }

// running starts a leader of a new cluster and gives a join token for it.
func running(t *testing.T) (*leader, string) {
	t.Helper()
	n, _ := mustInit(t)
	ca, err := pki.LoadCA(n.TLSDir())
	if err != nil {
		t.Fatal(err)
	}
	bundle, err := pki.LoadBundle(n.TLSDir())
	if err != nil {
		t.Fatal(err)
	}
	l := &leader{ca: ca}
	if l.secrets, err = config.LoadSecrets(n.Dir); err != nil {
		t.Fatal(err)
	}
	if l.cluster, err = config.LoadCluster(n.Dir); err != nil {
		t.Fatal(err)
	}
	s := api.NewServer(api.Options{Name: "n1", Listen: "127.0.0.1:0", Backend: l,
		Answers: []api.Answer{api.Join.By(l.Join)}, TLS: bundle.ServerJoinTLS(), Logger: slog.New(slog.DiscardHandler)})
	if err := s.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		_ = s.Close(ctx)
	})
	token, record, err := pki.NewJoinToken(s.Addr(), ca.Digest(), time.Now(), time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	l.record = record
	return l, token.Encode()
}

func TestJoin(t *testing.T) {
	l, token := running(t)
	n := settings("n2", filepath.Join(t.TempDir(), "n2"), 21010)
	n.Cluster = "" // the cluster says it
	res, err := Join(t.Context(), JoinOptions{Token: token, Node: n})
	if err != nil {
		t.Fatal(err)
	}
	if id := res.Identity; id.ID != 2 || id.Cluster != "c1" || id.Bootstrap || id.ClusterID != l.cluster.ClusterID ||
		strings.Join(res.Members, " ") != "n1 n2" {
		t.Errorf("result %+v", res)
	}
	loaded, err := config.Load(res.ConfigFile)
	if err != nil || loaded.Cluster != "c1" || loaded.Name != "n2" {
		t.Errorf("settings %+v, %v", loaded, err)
	}
	secrets, err := config.LoadSecrets(n.Dir)
	if err != nil || secrets != l.secrets {
		t.Errorf("secrets differ: %v", err)
	}
	bundle, err := pki.LoadBundle(n.TLSDir())
	if err != nil || bundle.Identity() != (pki.Identity{Cluster: "c1", ID: 2, Name: "n2"}) ||
		bundle.CADigest() != l.ca.Digest() {
		t.Errorf("bundle: %v", err)
	}
	if c, err := config.LoadCluster(n.Dir); err != nil || len(c.Members) != 2 {
		t.Errorf("cluster %+v, %v", c, err)
	}

	// The token works once.
	parent := t.TempDir()
	_, err = Join(t.Context(), JoinOptions{Token: token, Node: settings("n3", filepath.Join(parent, "n3"), 21020)})
	if api.KindOf(err) != api.KindUnauthorized {
		t.Errorf("second use: %v", err)
	}
	empty(t, parent)
}

func TestJoinRefusals(t *testing.T) {
	l, token := running(t)
	other, _ := running(t)
	parent := t.TempDir()
	n := settings("n2", filepath.Join(parent, "n2"), 21010)
	join := func(want string, o JoinOptions) {
		t.Helper()
		_, err := Join(t.Context(), o)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
		empty(t, parent)
		if l.record.Used {
			t.Error("the token was used up")
		}
	}
	join("trireme add", JoinOptions{Token: "trj1.nonsense", Node: n})
	foreign := n
	foreign.Dir = "elsewhere"
	join("absolute", JoinOptions{Token: token, Node: foreign})
	// A token that names another cluster's CA: the joining node does not trust the server at the address.
	parsed, err := pki.ParseJoinToken(token)
	if err != nil {
		t.Fatal(err)
	}
	pinned := strings.Replace(token, parsed.CADigest, other.ca.Digest(), 1)
	join("does not answer", JoinOptions{Token: pinned, Node: n})
	dead := strings.Replace(token, parsed.Address, "127.0.0.1:1", 1)
	join("does not answer", JoinOptions{Token: dead, Node: n})
}

func TestJoinChecksTheAnswer(t *testing.T) {
	other, _ := running(t)
	for want, spoil := range map[string]func(*api.JoinResult){
		"another CA":               func(r *api.JoinResult) { r.CA = other.ca.CertPEM(); r.CAKey, _ = other.ca.KeyPEM() },
		"incomplete":               func(r *api.JoinResult) { r.Cluster = nil },
		"secrets":                  func(r *api.JoinResult) { r.Secrets.Repl.Password = "" },
		"do not have node":         func(r *api.JoinResult) { r.Cluster.Members = r.Cluster.Members[:1] },
		`is for cluster "c1", not`: nil,
	} {
		l, token := running(t)
		l.spoil = spoil
		parent := t.TempDir()
		n := settings("n2", filepath.Join(parent, "n2"), 21010)
		if spoil == nil {
			n.Cluster = "c2"
		}
		_, err := Join(t.Context(), JoinOptions{Token: token, Node: n})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
		empty(t, parent)
	}
}

func TestCredentials(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"b", "a"} {
		if _, err := (Credential{Cluster: name, Token: "t-" + name}).Save(dir); err != nil {
			t.Fatal(err)
		}
	}
	write(t, filepath.Join(dir, ".hidden"))
	write(t, filepath.Join(dir, "README"))
	all, err := Credentials(dir)
	if err != nil || len(all) != 2 || all[0].Cluster != "a" || all[1].Token != "t-b" {
		t.Fatalf("%+v, %v", all, err)
	}
	bare := filepath.Join(dir, "token")
	if err := os.WriteFile(bare, []byte("secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if c, err := LoadCredential(bare); err != nil || c.Token != "secret" {
		t.Errorf("%+v, %v", c, err)
	}
	if err := os.Chmod(bare, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := LoadCredential(bare); err == nil || !strings.Contains(err.Error(), "chmod 600") {
		t.Errorf("a file that others can read: %v", err)
	}
	if all, err := Credentials(filepath.Join(dir, "none")); err != nil || all != nil {
		t.Errorf("%v, %v", all, err)
	}
}
