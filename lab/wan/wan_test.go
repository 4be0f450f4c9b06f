package wan

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"trireme/lab/child"
)

func TestMain(m *testing.M) {
	child.Main(Forwarder)
	if os.Getenv("WAN_TEST_CHILD") != "" {
		os.Exit(emulateUntilKilled())
	}
	goleak.VerifyTestMain(m)
}

// emulate makes hosts a, b and c, 4 ms from each other, for a test. It skips as needs.Netns does, which imports this
// package.
func emulate(t *testing.T) *Net {
	t.Helper()
	n, err := New(testTopology(t), []string{"a", "b", "c"})
	if errors.Is(err, ErrUnavailable) && os.Getenv("TRIREME_REQUIRE_NETNS") == "" {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.Close(); err != nil {
			t.Error(err)
		}
		t.Log(n.Stats())
	})
	return n
}

func testTopology(t *testing.T) Topology {
	t.Helper()
	topo, err := parseTopology("test", []byte("sites = [\"x\"]\nwithin = { rtt = \"4ms\" }\n"))
	if err != nil {
		t.Fatal(err)
	}
	return topo
}

func (n *Net) ping(t *testing.T, from, to string, count int) PingResult {
	t.Helper()
	r, err := n.Ping(t.Context(), from, to, 1000, time.Duration(count)*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestDelay: nothing is faster than asked, nothing is lost or overtaken, each pair has its own delay, and the observer
// has none.
func TestDelay(t *testing.T) {
	n := emulate(t)
	for _, test := range []struct {
		from, to string
		link     Link
	}{
		{"a", "b", Link{RTT: 4 * time.Millisecond}},
		{"b", "c", Link{RTT: 30 * time.Millisecond}},
		{"c", "a", Link{RTT: 2 * time.Millisecond, Jitter: 3 * time.Millisecond}},
		{Observer, "a", Link{}},
		{"b", Observer, Link{}},
	} {
		if test.from != Observer && test.to != Observer {
			if err := n.SetLink(test.from, test.to, test.link); err != nil {
				t.Fatal(err)
			}
		}
		r := n.ping(t, test.from, test.to, 500)
		t.Logf("%s to %s, asked %v: %v to %v, median %v", test.from, test.to, test.link, r.Min, r.Max, r.Median)
		if r.Received != r.Sent || r.Sent != 500 {
			t.Errorf("%d of %d answers", r.Received, r.Sent)
		}
		if r.Reordered > 0 {
			t.Errorf("%d answers overtook others", r.Reordered)
		}
		if r.Min < test.link.RTT {
			t.Errorf("a round trip of %v, asked %v", r.Min, test.link.RTT)
		}
		if test.link.Jitter > 0 && r.Median < test.link.RTT+test.link.Jitter/2 {
			t.Errorf("median %v shows no jitter", r.Median)
		}
	}
	if s := n.Stats(); s.Packets < 4000 || s.CPU <= 0 || s.Lost+s.Cut+s.Overflow > 0 {
		t.Errorf("%+v", s)
	}
}

// TestCuts: each direction alone, both, a whole host, and back.
func TestCuts(t *testing.T) {
	n := emulate(t)
	reaches := func(from, to string) bool {
		before := n.Stats().Packets
		_ = n.ping(t, from, to, 20)
		return n.Stats().Packets-before >= 20 // requests that arrived, answered or not
	}
	answered := func(from, to string) bool { return n.ping(t, from, to, 20).Received == 20 }
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	expect := func(what string, got, want bool) {
		t.Helper()
		if got != want {
			t.Errorf("%s: %v", what, got)
		}
	}
	must(n.CutOneWay("a", "b"))
	expect("a reaches b over a cut", reaches("a", "b"), false)
	expect("b reaches a, whose answers are cut", reaches("b", "a"), true)
	expect("a answers b", answered("b", "a"), false)
	expect("a and c", answered("a", "c"), true)
	must(n.Restore("a", "b"))
	expect("a and b, restored", answered("a", "b"), true)
	must(n.Cut("a", "b"))
	expect("b reaches a over a cut", reaches("b", "a"), false)
	must(n.Restore("b", "a"))
	for _, d := range []Direction{Both, Out, In} {
		must(n.Isolate("c", d))
		expect("c reaches a, cut "+d.String(), reaches("c", "a"), d == In)
		expect("b reaches c, cut "+d.String(), reaches("b", "c"), d == Out)
		expect("the observer sees c", answered(Observer, "c"), true)
		expect("a and b meanwhile", answered("a", "b"), true)
		must(n.RestoreAll())
	}
	expect("b and c, restored", answered("b", "c"), true)

	// What is under way when a link is cut is lost.
	must(n.Slow("a", "b", 400*time.Millisecond, 0))
	cut := time.AfterFunc(100*time.Millisecond, func() { _ = n.Cut("a", "b") })
	defer cut.Stop()
	if r := n.ping(t, "a", "b", 20); r.Received != 0 {
		t.Errorf("%d packets crossed a link that was cut before they arrived", r.Received)
	}
}

// TestLoss: every packet has the same chance, segments of bulk traffic included.
func TestLoss(t *testing.T) {
	n := emulate(t)
	if err := n.Lossy("a", "b", 0.1); err != nil {
		t.Fatal(err)
	}
	r := n.ping(t, "a", "b", 2000)
	if share := float64(r.Received) / float64(r.Sent); share < 0.76 || share > 0.86 { // 0.81; 5.7 standard deviations
		t.Errorf("%.3f of the round trips survive a loss of 10 %% in each direction, expected 0.81", share)
	}
	if lost := n.Stats().Lost; int(lost) != r.Sent-r.Received {
		t.Errorf("%d packets counted as lost, %d answers are missing", lost, r.Sent-r.Received)
	}
	if err := n.Lossy("a", "b", 0.001); err != nil {
		t.Fatal(err)
	}
	before := n.Stats()
	transfer(t, n, "a", "b", 4<<20)
	after := n.Stats()
	if packets := after.Packets - before.Packets; packets < 4<<20/mtu {
		t.Errorf("4 MiB crossed a lossy link in %d packets: segments were not cut to what fits on a wire", packets)
	}
}

// TestRate: bulk data takes as long as the rate says.
func TestRate(t *testing.T) {
	n := emulate(t)
	fast := transfer(t, n, "a", "b", 8<<20)
	if err := n.SetLink("a", "b", Link{RTT: 4 * time.Millisecond, Rate: 100 * mbit}); err != nil {
		t.Fatal(err)
	}
	slow := transfer(t, n, "a", "b", 8<<20)
	// 671 ms without headers, less what the buffers still hold
	if least := 600 * time.Millisecond; slow < least || slow > 10*least {
		t.Errorf("8 MiB at 100 Mbit/s took %v", slow)
	}
	t.Logf("8 MiB: %v, at 100 Mbit/s %v", fast, slow)
}

// transfer sends bytes over TCP between two hosts, checks them, and says how long it took.
func transfer(t *testing.T, n *Net, from, to string, size int) time.Duration {
	t.Helper()
	var l net.Listener
	err := n.Host(to).Do(func() (err error) {
		l, err = net.Listen("tcp", net.JoinHostPort(n.Host(to).Addr.String(), "0"))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	data := bytes.Repeat([]byte("0123456789abcde\n"), size/16)
	sent := make(chan error, 1)
	go func() {
		sent <- n.Host(from).Do(func() error {
			c, err := net.Dial("tcp", l.Addr().String())
			if err != nil {
				return err
			}
			defer c.Close()
			_, err = c.Write(data)
			return err
		})
	}()
	c, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if host, _, _ := net.SplitHostPort(c.RemoteAddr().String()); host != n.Host(from).Addr.String() {
		t.Errorf("%s appears as %s", from, host)
	}
	begin := time.Now()
	got, err := io.ReadAll(c)
	took := time.Since(begin)
	if err := errors.Join(err, <-sent); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, data) {
		t.Errorf("%d bytes arrived, and not those that were sent", len(got))
	}
	return took
}

// TestSecond: two emulations at once do not share addresses, and reach their own hosts.
func TestSecond(t *testing.T) {
	a, b := emulate(t), emulate(t)
	if a.Host("a").Addr == b.Host("a").Addr {
		t.Errorf("both have a host %v", a.Host("a").Addr)
	}
	for _, n := range []*Net{a, b} {
		if r := n.ping(t, Observer, "b", 20); r.Received != 20 {
			t.Errorf("%d of 20 answers", r.Received)
		}
	}
}

// TestLeftovers: nothing is left of an emulation, closed or killed.
func TestLeftovers(t *testing.T) {
	n := emulate(t)
	pid := n.forward.pid
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	if err := n.Cut("a", "b"); !errors.Is(err, errEnded) {
		t.Errorf("a fault after the end: %v", err)
	}
	gone(t, devices(n), pid)

	child := exec.Command("/proc/self/exe")
	child.Env = append(os.Environ(), "WAN_TEST_CHILD=1")
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = child.Wait() }()
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("no emulation in a child: %v", err)
	}
	var device string
	if _, err := fmt.Sscan(line, &device, &pid); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat("/sys/class/net/" + device); err != nil {
		t.Errorf("the child's device: %v", err)
	}
	if err := child.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	gone(t, device, pid)
}

// devices is the name of an emulation's device on this machine.
func devices(n *Net) string { return n.hosts[0].tun.Name() }

// gone waits until a device and a forwarding process are.
func gone(t *testing.T, device string, pid int) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); ; {
		_, noDevice := os.Stat("/sys/class/net/" + device)
		_, noProcess := os.Stat(fmt.Sprintf("/proc/%d/exe", pid))
		if noDevice != nil && noProcess != nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("remains: device %s (%v), process %d (%v)", device, noDevice, pid, noProcess)
		}
		<-time.After(10 * time.Millisecond)
	}
}

func emulateUntilKilled() int {
	n, err := New(Topology{Name: "child", Sites: []string{"x"}}, []string{"a"})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	fmt.Println(devices(n), n.forward.pid)
	select {}
}

// TestForwarderDies: an emulation without its process says so.
func TestForwarderDies(t *testing.T) {
	n := emulate(t)
	if err := syscall.Kill(n.forward.pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	<-n.forward.ended
	if err := n.Cut("a", "b"); !errors.Is(err, errEnded) || !strings.Contains(err.Error(), "signal: killed") {
		t.Errorf("a fault without a forwarding process: %v", err)
	}
	if err := n.Close(); err == nil {
		t.Error("Close does not tell that the process was killed")
	}
}

func TestNames(t *testing.T) {
	n := emulate(t)
	for _, err := range []error{n.Cut("a", "x"), n.CutOneWay("x", "a"), n.Isolate("x", Out), n.Restore("x", "a"),
		n.Slow("a", "a", 0, 0)} {
		if err == nil || !strings.Contains(err.Error(), "host") {
			t.Errorf("wrong name: %v", err)
		}
	}
	if _, err := n.Ping(t.Context(), "a", "x", 1, time.Second); err == nil {
		t.Error("a ping to a host that there is not")
	}
	for _, err := range []error{n.Lossy("a", "b", 1.5), n.Slow("a", "b", -1, 0), n.SetLink("a", "b", Link{Rate: 1})} {
		if err == nil || !strings.Contains(err.Error(), "between") {
			t.Errorf("impossible link: %v", err)
		}
	}
	for _, names := range [][]string{nil, {"a", "a"}, {""}, {Observer}} {
		if _, err := New(n.Topology, names); err == nil {
			t.Errorf("hosts %q", names)
		}
	}
}

// TestBudget: a process that would use a whole CPU gets a fifth of one. What a dead process has left is removed, and
// what a living one uses is not, also if that has a pid of another namespace.
func TestBudget(t *testing.T) {
	root, _, err := cpuHierarchy()
	if err != nil {
		t.Skip(err)
	}
	old, used := filepath.Join(root, budgetPrefix+"old-1"), filepath.Join(root, budgetPrefix+"used-1")
	for _, dir := range []string{old, used} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Skip(err)
		}
		defer os.Remove(dir)
		before := time.Now().Add(-2 * budgetYoung)
		if err := os.Chtimes(dir, before, before); err != nil {
			t.Fatal(err)
		}
	}
	owner, err := lockDir(used)
	if err != nil {
		t.Fatal(err)
	}
	defer owner.Close()
	b, err := NewBudget("test", 0.2)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(old); err == nil {
		t.Errorf("%s was left", old)
	}
	if _, err := os.Stat(used); err != nil {
		t.Errorf("a budget in use was removed: %v", err)
	}
	cmd := exec.Command("sh", "-c", "while :; do :; done")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	if err := b.Add(cmd.Process.Pid); err != nil {
		t.Error(err)
	}
	var stats BudgetStats
	// a busy machine may give it less than its budget for a while
	for stats.Throttled < 20 && time.Since(begin) < 30*time.Second {
		<-time.After(10 * time.Millisecond)
		if stats, err = b.Stats(); err != nil {
			t.Fatal(err)
		}
	}
	elapsed := time.Since(begin)
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	if used := cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime(); used > elapsed/2+50*time.Millisecond ||
		stats.Throttled < 20 {
		t.Errorf("a fifth of a CPU: %v used in %v, %+v", used, elapsed, stats)
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(b.dir); err == nil {
		t.Error("the cgroup is still there")
	}
	if _, err := NewBudget("test", 0); err == nil {
		t.Error("a budget of nothing")
	}
}
