package standalone

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"trireme/internal/access/router"
	"trireme/internal/api"
	"trireme/internal/base/config"
	"trireme/internal/base/pki"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// node is a node as a router sees it: an API, and something that greets where its mysqld would.
type node struct {
	api.Backend // what a router does not ask for is not there
	name        string
	mysqld      net.Listener
	server      *api.Server

	mu      sync.Mutex
	view    api.RouteView
	changed chan struct{}
	epoch   string // in which it takes writes; empty: in none
	index   uint64 // of its log
	outcome api.Outcome
	routers api.Routers
	asked   []api.OutcomeQuery
	reads   reads
}

func (n *node) Settings() *config.Cluster {
	return &config.Cluster{APITokens: []config.APIToken{{Name: "app", Role: "viewer", Hash: pki.HashToken(viewerToken)}}}
}

const viewerToken = "trt1.a-viewer"

func (n *node) Metrics() prometheus.Gatherer { return prometheus.NewRegistry() }

func (n *node) Route() (api.RouteView, <-chan struct{}) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.view, n.changed
}

func (n *node) View(context.Context) api.ClusterView {
	n.mu.Lock()
	defer n.mu.Unlock()
	return api.ClusterView{Cluster: "as " + n.name + " sees it"}
}

func (n *node) History(context.Context) ([]api.Event, error) {
	return []api.Event{{Node: n.name}}, nil
}

func (n *node) Serves(_ context.Context, epoch string) (uint64, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.epoch == "" || n.epoch != epoch {
		return 0, errors.New("not in that epoch")
	}
	return n.index, nil
}

func (n *node) Outcome(_ context.Context, q api.OutcomeQuery) (api.Outcome, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.asked = append(n.asked, q)
	return n.outcome, nil
}

// says sets the view and the epoch.
func (n *node) says(v api.RouteView, epoch string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	v.Node = n.name
	n.view, n.epoch = v, epoch
	close(n.changed)
	n.changed = make(chan struct{})
}

func (n *node) target(epoch string) *api.RouteTarget {
	return &api.RouteTarget{Name: n.name, Addr: n.mysqld.Addr().String(), Epoch: epoch}
}

func (n *node) stop(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := n.server.Close(ctx); err != nil {
		t.Error(err)
	}
}

// authority is a new CA, and what its clients trust.
func authority(t *testing.T) (*pki.CA, *tls.Config) {
	t.Helper()
	ca, err := pki.NewCA("c1", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	trust, err := pki.ClientTLS(ca.CertPEM())
	if err != nil {
		t.Fatal(err)
	}
	return ca, trust
}

// follow makes f hear a view at an address. The view stays young for an hour, because no node repeats it.
func follow(t *testing.T, f *follower, addr string, view api.RouteView) {
	t.Helper()
	client := api.NewClient("https://"+addr, "", f.trust)
	t.Cleanup(client.Close)
	f.sources[addr] = &source{client: client, heard: heard{view: view, at: time.Now().Add(time.Hour)}}
	f.logName = logOf(view)
}

// newNode starts one. Its mysqld greets with the node's name and a line end.
func newNode(t *testing.T, ca *pki.CA, name string, id uint64) *node {
	t.Helper()
	n := &node{name: name, changed: make(chan struct{})}
	bundle, err := ca.Issue(pki.NodeCert{ID: id, Name: name, Hosts: []string{"127.0.0.1"}}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	n.server = api.NewServer(api.Options{Name: name, Listen: "127.0.0.1:0", Backend: n, TLS: bundle.ServerTLS(),
		Routers: &n.routers})
	if err := n.server.Start(); err != nil {
		t.Fatal(err)
	}
	if n.mysqld, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	go func() {
		for {
			c, err := n.mysqld.Accept()
			if err != nil {
				return
			}
			_, _ = c.Write([]byte(name + "\n"))
			t.Cleanup(func() { _ = c.Close() })
		}
	}()
	t.Cleanup(func() {
		_ = n.mysqld.Close()
		n.stop(t)
	})
	return n
}

// ports are three free ones.
func ports(t *testing.T) (rw, ro, split int) {
	t.Helper()
	for _, p := range []*int{&rw, &ro, &split} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		*p = l.Addr().(*net.TCPAddr).Port
	}
	return rw, ro, split
}

// start runs a router that knows the first node, and returns its ports.
func start(t *testing.T, ca *pki.CA, known ...*node) (rw, ro string) {
	t.Helper()
	return startWith(t, "", ca, known...)
}

// startWith is start with a token; empty: none.
func startWith(t *testing.T, token string, ca *pki.CA, known ...*node) (rw, ro string) {
	t.Helper()
	a := config.Standalone{CA: filepath.Join(t.TempDir(), "ca.crt"), Router: config.Default().Router}
	if err := os.WriteFile(a.CA, ca.CertPEM(), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, n := range known {
		a.Nodes = append(a.Nodes, n.server.Addr())
	}
	// these servers only echo
	a.Bind, a.HoldTimeout, a.Sessions = "127.0.0.1", config.Duration(time.Minute), config.SessionsPass
	a.RWPort, a.ROPort, a.SplitPort = ports(t)
	a.StreamPort = 0
	if token != "" {
		a.Token = filepath.Join(t.TempDir(), "token")
		if err := os.WriteFile(a.Token, []byte(token+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- Run(ctx, a, slog.New(slog.DiscardHandler)) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return net.JoinHostPort(a.Bind, strconv.Itoa(a.RWPort)), net.JoinHostPort(a.Bind, strconv.Itoa(a.ROPort))
}

// connect returns a session and who greeted; it waits for the router to listen.
func connect(t *testing.T, addr string) (net.Conn, string) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); ; {
		c, err := net.Dial("tcp", addr)
		if err == nil {
			t.Cleanup(func() { _ = c.Close() })
			return c, greeting(t, c)
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func greeting(t *testing.T, c net.Conn) string {
	t.Helper()
	_ = c.SetReadDeadline(time.Now().Add(20 * time.Second))
	line, err := bufio.NewReader(c).ReadString('\n')
	if err != nil {
		t.Fatalf("no greeting: %q %v", line, err)
	}
	return strings.TrimSpace(line)
}

// ends waits until a session is closed.
func ends(t *testing.T, c net.Conn) {
	t.Helper()
	_ = c.SetReadDeadline(time.Now().Add(20 * time.Second))
	if _, err := c.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("the session goes on: %v", err)
	}
}

func cluster(t *testing.T) (ca *pki.CA, n1, n2 *node, members []api.RouteNode) {
	t.Helper()
	ca, err := pki.NewCA("c1", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	n1, n2 = newNode(t, ca, "n1", 1), newNode(t, ca, "n2", 2)
	return ca, n1, n2, []api.RouteNode{{Name: "n1", API: n1.server.Addr()}, {Name: "n2", API: n2.server.Addr()}}
}

// TestFollows: a router that was told of one node finds the other, goes with a change of leaders, and ends sessions of
// the one before.
func TestFollows(t *testing.T) {
	ca, n1, n2, members := cluster(t)
	at := func(term uint64, rw *api.RouteTarget, ro ...*node) api.RouteView {
		v := api.RouteView{Cluster: "c1", Generation: 1, Term: term, RW: rw, Nodes: members}
		for _, n := range ro {
			v.RO = append(v.RO, *n.target("1"))
		}
		return v
	}
	n1.says(at(1, n1.target("1/1"), n2), "1/1")
	n2.says(at(1, n1.target("1/1"), n2), "")
	rw, ro := start(t, ca, n1)
	first, who := connect(t, rw)
	if who != "n1" {
		t.Fatalf("%s greeted, not the leader", who)
	}
	if _, who := connect(t, ro); who != "n2" {
		t.Fatalf("%s greeted, not the follower", who)
	}
	// n1 is cut off from n2 and still says what it said; only n2 knows better.
	n2.says(at(2, n2.target("1/2")), "1/2")
	ends(t, first)
	if _, who := connect(t, rw); who != "n2" {
		t.Fatalf("%s greeted, not the new leader", who)
	}
}

// TestStaleView: no client is led to a node whose view names it the leader while the node itself, when asked, does not.
func TestStaleView(t *testing.T) {
	ca, n1, n2, members := cluster(t)
	old := api.RouteView{Cluster: "c1", Generation: 1, Term: 1, RW: n1.target("1/1"), Nodes: members}
	n1.says(old, "")
	n2.says(old, "")
	rw, _ := start(t, ca, n1, n2)
	var c net.Conn
	for deadline := time.Now().Add(20 * time.Second); c == nil; {
		var err error
		if c, err = net.Dial("tcp", rw); err != nil && time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
	defer c.Close()
	_ = c.SetReadDeadline(time.Now().Add(500 * time.Millisecond))
	if n, err := c.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("it was led somewhere: %d bytes, %v", n, err)
	}
	n2.says(api.RouteView{Cluster: "c1", Generation: 1, Term: 2, RW: n2.target("1/2"), Nodes: members}, "1/2")
	if who := greeting(t, c); who != "n2" {
		t.Fatalf("%s greeted", who)
	}
}

// TestNobodyAnswers: without any view open sessions on the read-write port go on, and read-only ones end.
func TestNobodyAnswers(t *testing.T) {
	ca, n1, n2, members := cluster(t)
	v := api.RouteView{Cluster: "c1", Generation: 1, Term: 1, RW: n1.target("1/1"), RO: []api.RouteTarget{*n2.target("1")},
		Nodes: members}
	n1.says(v, "1/1")
	n2.says(v, "")
	rw, ro := start(t, ca, n1, n2)
	writer, _ := connect(t, rw)
	reader, _ := connect(t, ro)
	n1.stop(t)
	n2.stop(t)
	ends(t, reader)
	_ = writer.SetReadDeadline(time.Now().Add(300 * time.Millisecond))
	if _, err := writer.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("the session on the read-write port ended: %v", err)
	}
}

// TestForeignCluster: a node whose certificate is of another CA is not believed, and a file that is no certificate is
// refused.
func TestForeignCluster(t *testing.T) {
	_, n1, _, members := cluster(t)
	n1.says(api.RouteView{Term: 1, RW: n1.target("1/1"), Nodes: members}, "1/1")
	_, client := authority(t)
	c := api.NewClient("https://"+n1.server.Addr(), "", client)
	defer c.Close()
	if err := c.WatchRoute(t.Context(), func(api.RouteView) { t.Error("a view came through") }); err == nil {
		t.Fatal("no error")
	}
	file := filepath.Join(t.TempDir(), "ca.crt")
	if err := os.WriteFile(file, []byte("x"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := Run(t.Context(), config.Standalone{CA: file}, slog.New(slog.DiscardHandler)); err == nil ||
		!strings.Contains(err.Error(), file) {
		t.Fatalf("got %v", err)
	}
}

// TestHangsUp: a node that answers and hangs up, each time at once, is asked less and less often.
func TestHangsUp(t *testing.T) {
	ca, trust := authority(t)
	bundle, err := ca.Issue(pki.NodeCert{ID: 3, Name: "n3", Hosts: []string{"127.0.0.1"}}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	asked := make(chan time.Time, 16)
	former := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		select {
		case asked <- time.Now():
		default:
		}
		_ = json.NewEncoder(w).Encode(api.RouteView{Node: "n3", Cluster: "c1"})
	}))
	former.TLS = bundle.ServerTLS()
	former.StartTLS()
	defer former.Close()
	ctx, cancel := context.WithCancel(t.Context())
	f := newFollower(ctx, trust, slog.New(slog.DiscardHandler))
	f.router = router.New(router.Config{})
	defer f.wg.Wait()
	defer cancel()
	f.follow(former.Listener.Addr().String())
	const times = 5
	var first, last time.Time
	for i := range times {
		select {
		case last = <-asked:
		case <-time.After(10 * time.Second):
			t.Fatalf("asked %d times only", i)
		}
		if i == 0 {
			first = last
		}
	}
	if took := last.Sub(first); took < (1<<(times-1)-1)*leastPause {
		t.Errorf("asked %d times in %v", times, took)
	}
}

// TestRemovedNode: one that was removed still has its certificate, claims a high term and leadership, and is in the
// router's list. No client gets there, before and after a change of leaders.
func TestRemovedNode(t *testing.T) {
	ca, n1, n2, members := cluster(t)
	members[0].ID, members[1].ID = 1, 2
	removed := newNode(t, ca, "n3", 3)
	at := func(term uint64, rw *api.RouteTarget) api.RouteView {
		return api.RouteView{Cluster: "c1", Generation: 1, Term: term, RW: rw, Nodes: members, Next: 4}
	}
	mine := api.RouteNode{Name: "n3", API: removed.server.Addr(), ID: 3}
	removed.says(api.RouteView{Cluster: "c1", Generation: 9, Term: 99, RW: removed.target("9/99"),
		Nodes: []api.RouteNode{mine}, Next: 9}, "9/99")
	n1.says(at(1, n1.target("1/1")), "1/1")
	n2.says(at(1, n1.target("1/1")), "")
	rw, _ := start(t, ca, removed, n1, n2)
	first, who := connect(t, rw)
	if who != "n1" {
		t.Fatalf("%s greeted, not the leader", who)
	}
	n2.says(at(2, n2.target("1/2")), "1/2")
	n1.says(at(2, n2.target("1/2")), "")
	ends(t, first)
	if _, who := connect(t, rw); who != "n2" {
		t.Fatalf("%s greeted, not the new leader", who)
	}
}
