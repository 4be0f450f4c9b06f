package demo

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"trireme/internal/api"
	"trireme/internal/base/config"
)

// helperEnv makes the test binary act as a child process: see TestMain.
const helperEnv = "TRIREME_DEMO_TEST_HELPER"

func TestMain(m *testing.M) {
	switch os.Getenv(helperEnv) {
	case "":
		os.Exit(m.Run())
	case "parent": // starts a sleeping child by StartProcess, prints its pid, and waits to be killed
		p, err := StartProcess(Command{Path: "/bin/sleep", Args: []string{"600"}, LogFile: os.DevNull})
		fmt.Println(p.PID, err)
		select {}
	}
}

func startSleep(t *testing.T, path string, args ...string) *Process {
	t.Helper()
	p, err := StartProcess(Command{Path: path, Args: args, LogFile: filepath.Join(t.TempDir(), "log")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Kill)
	return p
}

func waitGone(t *testing.T, id ProcessID) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); id.alive(); {
		if time.Now().After(deadline) {
			t.Fatalf("process %d is still there", id.PID)
		}
		<-time.After(5 * time.Millisecond)
	}
}

func waitFile(t *testing.T, path string) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); ; {
		if _, err := os.Stat(path); err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s does not appear", path)
		}
		<-time.After(time.Millisecond)
	}
}

func TestStop(t *testing.T) {
	polite := startSleep(t, "/bin/sleep", "600")
	if !polite.Alive() || !polite.Stop(10*time.Second) || polite.Alive() {
		t.Error("SIGTERM was not enough for sleep")
	}
	if err := polite.Signal(syscall.SIGKILL); err != nil {
		t.Errorf("signal to an ended process: %v", err)
	}
	ready := filepath.Join(t.TempDir(), "ready")
	stubborn := startSleep(t, "/bin/sh", "-c", "trap '' TERM; : > "+ready+"; while :; do sleep 0.05; done")
	id := processID(stubborn.PID)
	waitFile(t, ready)
	if stubborn.Stop(300*time.Millisecond) || stubborn.Alive() || id.alive() {
		t.Error("a process that ignores SIGTERM must be killed")
	}
	frozen := startSleep(t, "/bin/sleep", "600")
	_ = frozen.Signal(syscall.SIGSTOP)
	if !frozen.Stop(10 * time.Second) {
		t.Error("a stopped process must be woken to hear SIGTERM")
	}
}

// TestHalt: what is busy does nothing any more when Halt returns, and 0, which is no process, is not taken for the
// caller.
func TestHalt(t *testing.T) {
	file := filepath.Join(t.TempDir(), "beats")
	p := startSleep(t, "/bin/sh", "-c", "while :; do echo x >>"+file+"; done")
	waitFile(t, file)
	if threadsInMotion(p.PID) == "" {
		t.Error("a busy process stands still")
	}
	if err := Halt(p.PID); err != nil {
		t.Fatal(err)
	}
	if s := threadsInMotion(p.PID); s != "" {
		t.Error(s)
	}
	p.Kill()
	if err := Halt(p.PID); err != nil {
		t.Errorf("of a process that is gone: %v", err)
	}
	if err := Halt(0); err == nil {
		t.Error("process 0 was stopped")
	}
}

func TestStartProcessFails(t *testing.T) {
	if _, err := StartProcess(Command{Path: "/nonexistent/program", LogFile: filepath.Join(t.TempDir(), "log")}); err == nil {
		t.Error("no error for a program that does not exist")
	}
}

// TestChildDiesWithParent: SIGKILL of the parent, which can clean nothing up, takes the child along.
func TestChildDiesWithParent(t *testing.T) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), helperEnv+"=parent")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var pid int
	var failed string
	if _, err := fmt.Fscanln(out, &pid, &failed); err != nil || pid == 0 {
		t.Fatalf("child: %v %s", err, failed)
	}
	id := processID(pid)
	if !id.alive() {
		t.Fatal("the child does not run")
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	waitGone(t, id)
}

// A daemon that starts runs mysqld to ask for its version; a kill meant for the server must not hit that process.
func TestIsMySQL(t *testing.T) {
	for args, want := range map[string]bool{
		"/usr/sbin/mysqld --defaults-file=/x/my.cnf": true,
		"/lib/ld-linux.so /usr/sbin/mysqld --port=1": true,
		"/usr/sbin/mysqld --no-defaults --version":   false,
		"trireme guard /run/mysqld.sock":             false,
	} {
		if got := isMySQL(strings.Fields(args)); got != want {
			t.Errorf("%s: %t", args, got)
		}
	}
}

func TestStopByStateHitsOnlyItsOwn(t *testing.T) {
	dir := t.TempDir()
	mine, stranger := startSleep(t, "/bin/sleep", "600"), startSleep(t, "/bin/sleep", "600")
	s := State{Nodes: []NodeState{
		{Name: "n1", DaemonPID: mine.PID, DaemonStart: startTime(mine.PID)},
		{Name: "n2", DaemonPID: stranger.PID, DaemonStart: startTime(stranger.PID) + 1}, // the pid was reused since
		{Name: "n3", DaemonPID: 0},
	}}
	if err := s.write(dir); err != nil {
		t.Fatal(err)
	}
	if ended, err := Stop(t.Context(), dir, io.Discard); err != nil || ended != 1 {
		t.Fatal(ended, err)
	}
	waitGone(t, processID(mine.PID))
	if !stranger.Alive() {
		t.Error("a process that is not the demo's was ended")
	}
	var out strings.Builder
	if ended, err := Stop(t.Context(), dir, &out); err != nil || ended != 0 || !strings.Contains(out.String(), "Nothing") {
		t.Errorf("second stop: %q %v", out.String(), err)
	}
	if _, err := Stop(t.Context(), t.TempDir(), io.Discard); err == nil || !strings.Contains(err.Error(), "no demo in") {
		t.Errorf("stop of no demo: %v", err)
	}
}

func TestCheckDir(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new", "one")
	if err := checkDir(dir); err != nil {
		t.Fatal(err)
	}
	p := startSleep(t, "/bin/sleep", "600")
	s := State{Nodes: []NodeState{{DaemonPID: p.PID, DaemonStart: startTime(p.PID)}}}
	if err := s.write(dir); err != nil {
		t.Fatal(err)
	}
	if err := checkDir(dir); err == nil || !strings.Contains(err.Error(), "is running") {
		t.Errorf("running demo: %v", err)
	}
	p.Kill()
	if err := checkDir(dir); err == nil || !strings.Contains(err.Error(), "earlier demo") {
		t.Errorf("ended demo: %v", err)
	}
	if st, err := os.Stat(filepath.Join(dir, stateFile)); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("demo.json holds a password: mode %v %v", st.Mode(), err)
	}
}

func TestPorts(t *testing.T) {
	base, err := FreePortBase(3)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[int]bool{}
	for i := range 3 {
		for _, p := range portsOf(base, i).all() {
			if seen[p] || p < base || p >= base+30 {
				t.Errorf("port %d of node %d", p, i)
			}
			seen[p] = true
		}
	}
	l, err := listen(portsOf(base, 2).RO)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if err := checkPorts(base, 3); err == nil || !strings.Contains(err.Error(), fmt.Sprint(portsOf(base, 2).RO)) {
		t.Errorf("port in use: %v", err)
	}
	for _, bad := range []int{0, 80, 65530} {
		if checkPorts(bad, 3) == nil {
			t.Errorf("port base %d was accepted", bad)
		}
	}
}

// Ports are given out once although nothing listens on them yet, in this process and, by a port that stands for each
// block, in others.
func TestPortsAreGivenOutOnce(t *testing.T) {
	var wg sync.WaitGroup
	bases := make([]int, 20)
	for i := range bases {
		wg.Go(func() {
			if i%2 == 1 {
				p, err := sparePorts()
				if bases[i] = p.MySQL; err != nil {
					t.Error(err)
				}
				return
			}
			var err error
			if bases[i], err = FreePortBase(1); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	seen := map[int]bool{}
	for _, base := range bases {
		if seen[base] {
			t.Errorf("%d was given out twice", base)
		}
		seen[base] = true
		release(portsOf(base, 0))
	}
	other, err := listen(claimPort(bases[0]))
	if err != nil {
		t.Fatalf("a block that was given back: %v", err)
	}
	if claim(bases[0], 1) {
		t.Error("another process's block was given out")
	}
	other.Close()
	if !claim(bases[0], 1) {
		t.Error("a block that is free was not given out")
	}
	release(portsOf(bases[0], 0))
}

func TestUnhealthy(t *testing.T) {
	good := func() api.ClusterView {
		return api.ClusterView{Leader: "n1",
			Members: []api.MemberView{{Name: "n1", Role: api.RoleLeader, State: api.StateHealthy},
				{Name: "n2", Role: api.RoleFollower, State: api.StateHealthy}}}
	}
	if err := unhealthy(good(), 2); err != nil {
		t.Error(err)
	}
	for name, change := range map[string]func(*api.ClusterView){
		"no leader":            func(v *api.ClusterView) { v.Leader = "" },
		"leader not one":       func(v *api.ClusterView) { v.Members[0].Role = api.RoleFollower },
		"a node catching up":   func(v *api.ClusterView) { v.Members[1].State = api.StateCatchingUp },
		"a node missing":       func(v *api.ClusterView) { v.Members = v.Members[:1] },
		"leader unknown":       func(v *api.ClusterView) { v.Leader = "n9" },
		"nothing but a leader": func(v *api.ClusterView) { v.Members = nil },
	} {
		v := good()
		change(&v)
		if unhealthy(v, 2) == nil {
			t.Errorf("%s: judged healthy", name)
		}
	}
}

// TestJoined: a node that has not heard of its vote is not whole, or a campaign demands writes of a majority that has not
// got one.
func TestJoined(t *testing.T) {
	view := func(state string, voter bool) api.ClusterView {
		return api.ClusterView{Members: []api.MemberView{{Name: "n2", State: state, Raft: api.RaftView{Voter: voter}}}}
	}
	for _, tt := range []struct {
		name, role string
		view       api.ClusterView
		joined     bool
	}{
		{"n2", config.RoleVoter, view(api.StateHealthy, true), true},
		{"n2", config.RoleVoter, view(api.StateHealthy, false), false},
		{"n2", config.RoleLogger, view(api.StateHealthy, false), false},
		{"n2", config.RoleLearner, view(api.StateHealthy, false), true},
		{"n2", config.RoleVoter, view(api.StateCatchingUp, true), false},
		{"n3", config.RoleVoter, view(api.StateHealthy, true), false},
	} {
		if err := (&Node{Name: tt.name, Role: tt.role}).Joined(tt.view); (err == nil) != tt.joined {
			t.Errorf("%s, %s, in %+v: %v", tt.name, tt.role, tt.view.Members, err)
		}
	}
}

func TestPollUntilSaysWhy(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
	defer cancel()
	err := pollUntil(ctx, time.Millisecond, "the moon", func() error { return fmt.Errorf("is still new") })
	if err == nil || !strings.Contains(err.Error(), "the moon") || !strings.Contains(err.Error(), "still new") {
		t.Errorf("%v", err)
	}
}

func TestRunOptions(t *testing.T) {
	if _, err := (RunOptions{Nodes: -1}).withDefaults(); err == nil {
		t.Error("-1 nodes accepted")
	}
	if _, err := (RunOptions{Learners: config.MaxMembers}).withDefaults(); err == nil {
		t.Error("too many learners were taken")
	}
	if _, err := (RunOptions{Loggers: -1}).withDefaults(); err == nil {
		t.Error("-1 loggers accepted")
	}
	o, err := RunOptions{Dir: "some/where"}.withDefaults()
	if err != nil || o.Nodes != 3 || !filepath.IsAbs(o.Dir) || o.Duration != time.Minute || o.PortBase == 0 {
		t.Errorf("%+v %v", o, err)
	}
}

// Addresses are of the nodes that there are when a client connects, not of those that there were when it got its list.
func TestInTurn(t *testing.T) {
	c := &Cluster{opts: Options{Dir: t.TempDir()}}
	first := c.layOutNode("n1", config.RoleVoter, Ports{Stream: 1001})
	next := c.Stream()
	c.layOutNode("n2", config.RoleVoter, Ports{Stream: 1002})
	c.Forget(first)
	for range 3 {
		if got := next(); got != host+":1002" {
			t.Errorf("the next address is %s", got)
		}
	}
}
