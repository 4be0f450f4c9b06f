package robustness

import (
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"trireme/internal/api"
	"trireme/internal/base/config"
	"trireme/internal/base/durable"
	"trireme/internal/core/ha"
	"trireme/internal/ops/demo"
	"trireme/internal/ops/setup"
	"trireme/lab/testkit"
)

// move gives a node that is stopped other ports, in its file.
func (c *cluster) move(n *demo.Node, base int, known string) {
	c.t.Helper()
	path := filepath.Join(n.Dir, config.NodeFileName)
	f, err := config.Load(path)
	must(c.t, err)
	n.Ports = demo.Ports{MySQL: base, Peer: base + 1, API: base + 2, RW: base + 3, RO: base + 4}
	at := func(port int) string { return fmt.Sprintf("127.0.0.1:%d", port) }
	f.Peer.Listen, f.Peer.Advertise, f.Peer.Known = at(n.Ports.Peer), at(n.Ports.Peer), known
	f.API = config.API{Listen: at(n.Ports.API), Advertise: at(n.Ports.API)}
	f.MySQL.Port, f.Router.RWPort, f.Router.ROPort = n.Ports.MySQL, n.Ports.RW, n.Ports.RO
	must(c.t, durable.WriteFile(path, config.Render(f), 0o600))
}

// knownAt waits until the settings, as a node has them, hold the new addresses of another one.
func (c *cluster) knownAt(asked, n *demo.Node) {
	c.t.Helper()
	eventually(c.t, steerLimit, asked.Name+" knows where "+n.Name+" is", func() error {
		s, err := config.LoadCluster(asked.Dir)
		if err != nil {
			return err
		}
		m, _ := s.Member(n.Name)
		want := fmt.Sprintf("127.0.0.1:%d 127.0.0.1:%d %d", n.Ports.Peer, n.Ports.API, n.Ports.RW)
		if got := fmt.Sprintf("%s %s %d", m.Peer, m.API, m.RWPort); got != want || m.Role != config.RoleLogger &&
			m.MySQLPort != n.Ports.MySQL {
			return fmt.Errorf("%s, not %s", got, want)
		}
		return nil
	})
}

// TestChangeAddress follows docs/ops/change-an-address.md: one node after the other gets other addresses, and then all
// of them at once.
func TestChangeAddress(t *testing.T) {
	t.Parallel()
	c := create(t, 1, 2)
	n1 := c.healthy()
	all := c.Nodes()
	base, err := demo.FreePortBase(6)
	must(t, err)
	for i, n := range []*demo.Node{all[1], n1} { // a follower, and the leader
		c.StopDaemon(n)
		c.move(n, base+10*i, "")
		c.start(n)
		if now := c.healthy(); now != n1 {
			t.Fatalf("%s leads", now.Name)
		}
		for _, o := range all {
			c.knownAt(o, n)
		}
	}
	s := c.session(n1)
	s.exec("CREATE DATABASE moved", "CREATE TABLE moved.t (a INT PRIMARY KEY)", "INSERT INTO moved.t VALUES (1)")
	s.close()

	// All at once: no node is where the others know it. Nothing comes of that until one is told.
	c.StopAll()
	for i, n := range all {
		c.move(n, base+10*(2+i), "")
	}
	must(t, c.StartAll())
	eventually(t, steerLimit, "no quorum", func() error {
		v := result[api.ClusterView](c, n1, 3, "status")
		for _, m := range v.Members { // none: n1 does not answer yet
			if m.Name != n1.Name && m.ReasonCode != ha.Unreachable {
				return fmt.Errorf("%+v", m)
			}
		}
		if len(v.Members) == 0 {
			return errors.New("no answer")
		}
		return nil
	})
	c.StopDaemon(all[1])
	c.move(all[1], base+10*3, fmt.Sprintf("%s=127.0.0.1:%d %s=127.0.0.1:%d", n1.Name, n1.Ports.Peer, all[2].Name,
		all[2].Ports.Peer))
	c.start(all[1])
	c.healthy()
	for _, n := range all {
		for _, o := range all {
			c.knownAt(o, n)
		}
	}
	if got := c.session(n1).value("SELECT a FROM moved.t"); got != "1" {
		t.Errorf("the row is %s", got)
	}

	// From now on no node needs to be told.
	c.StopAll()
	c.move(all[1], base+10*3, "")
	must(t, c.StartAll())
	c.healthy()
	events, err := c.History(t.Context(), n1)
	must(t, err)
	moves := 0
	for _, e := range events {
		if e.Kind == "address" {
			moves++
		}
	}
	if moves != 5 {
		t.Errorf("%d moves are told, not 5", moves)
	}
	c.movesBeforeItsFirstStart(base + 50)
	c.KillDaemon(all[2])
	m := c.shows(n1, all[2].Name, "is down", func(m api.MemberView) bool { return m.State == api.StateDown })
	if m.Daemon.Peer != fmt.Sprintf("127.0.0.1:%d", all[2].Ports.Peer) {
		t.Errorf("it is looked for at %s", m.Daemon.Peer)
	}
}

// movesBeforeItsFirstStart: a node that got other addresses before it ever had a leader is found by them, too. While it
// gives one that leads nowhere, the others, which it reaches, name that one.
func (c *cluster) movesBeforeItsFirstStart(base int) {
	c.t.Helper()
	leader := c.healthy()
	cl := c.Client(leader)
	defer cl.Close()
	token, err := api.NewJoinToken.Ask(c.t.Context(), cl, api.JoinTokenRequest{Name: "n9", Role: config.RoleLogger})
	must(c.t, err)
	node := c.unstarted("n9")
	n9 := &demo.Node{Name: "n9", Role: config.RoleLogger, Dir: node.Dir}
	_, err = setup.Join(c.t.Context(), setup.JoinOptions{Token: token.Token, Node: node, Role: config.RoleLogger})
	must(c.t, err)
	c.move(n9, base, "")
	path := filepath.Join(n9.Dir, config.NodeFileName)
	start := func(advertise string) *exec.Cmd {
		f, err := config.Load(path)
		must(c.t, err)
		f.Peer.Advertise = advertise
		must(c.t, durable.WriteFile(path, config.Render(f), 0o600))
		cmd := exec.CommandContext(c.t.Context(), testkit.Program(c.t, testkit.Trireme), "node", "--config", path)
		must(c.t, cmd.Start())
		return cmd
	}
	nowhere := fmt.Sprintf("127.0.0.1:%d", base+9)
	cmd := start(nowhere)
	named := func(m api.MemberView) bool {
		text := strings.Join(m.Warnings, "; ")
		return m.Answers() && strings.Contains(text, "cannot reach it at ") && strings.Contains(text, nowhere+": ") &&
			strings.Contains(text, "hears from no node")
	}
	for _, o := range c.Nodes() {
		c.shows(o, n9.Name, "has an address that leads nowhere", named)
	}
	if got := c.reasons(leader, n9.Name); !slices.Contains(got, string(ha.Warning)) {
		c.t.Errorf("why-not says %q", got)
	}
	must(c.t, cmd.Process.Signal(syscall.SIGTERM))
	must(c.t, cmd.Wait())
	cmd = start(fmt.Sprintf("127.0.0.1:%d", n9.Ports.Peer))
	for _, o := range c.Nodes() {
		c.knownAt(o, n9)
	}
	result[api.MemberResult](c, leader, 0, "remove "+n9.Name)
	if err := cmd.Wait(); cmd.ProcessState.ExitCode() != 4 {
		c.t.Errorf("a removed node ends: %v", err)
	}
}
