package transport

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"trireme/internal/base/loop"
	"trireme/internal/base/pki"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv("TRANSPORT_TEST_CHILD"); dir != "" {
		runChild(dir)
	}
	checkLeaks(m)
}

func TestMessagesArriveInOrder(t *testing.T) {
	a, b := startNode(t, 1, nil), startNode(t, 2, nil)
	connect(a, b)
	const n = 2000
	for i := uint64(1); i <= n; i++ {
		a.Send([]*raftpb.Message{
			message(raftpb.MsgApp, 1, 2, i, []byte("data"), bytes.Repeat([]byte{byte(i)}, int(i))),
			message(raftpb.MsgHeartbeat, 1, 2, i),
		})
	}
	eventually(t, "all arrived", func() bool { return len(b.received()) == 2*n })
	next := map[raftpb.MessageType]uint64{}
	for _, m := range b.received() {
		next[m.GetType()]++
		if m.GetIndex() != next[m.GetType()] {
			t.Fatalf("%s %d came as number %d", m.GetType(), m.GetIndex(), next[m.GetType()])
		}
		if m.GetType() == raftpb.MsgApp &&
			(len(m.GetEntries()) != 2 || len(m.GetEntries()[1].GetData()) != int(m.GetIndex())) {
			t.Fatalf("message %d is damaged", m.GetIndex())
		}
	}
	a.with(func() {
		if a.unreachable != 0 {
			t.Fatal("reported unreachable")
		}
	})
	eventually(t, "a round-trip time", func() bool { return a.RTT(2).Samples > 0 && a.RTT(2).P99 < time.Second })
}

// A peer that does not take its bulk data still hears heartbeats at once; the bulk queue is bounded and says so.
func TestBulkDoesNotHoldUpControl(t *testing.T) {
	a, b := startNode(t, 1, func(c *Config) { c.MaxBulkBytes = 8 << 20 }), startNode(t, 2, nil)
	beats := make(chan struct{}, 1)
	b.onRaft = func(m *raftpb.Message) {
		if m.GetType() == raftpb.MsgHeartbeat {
			beats <- struct{}{}
		}
	}
	connect(a, b)
	b.deafen(1, bulkStream, true)
	for range 64 {
		a.Send([]*raftpb.Message{message(raftpb.MsgApp, 1, 2, 1, make([]byte, 1<<20))})
	}
	eventually(t, "reported as unreachable", func() bool {
		a.mu.Lock()
		defer a.mu.Unlock()
		return a.unreachable > 0
	})
	for range 20 {
		a.Send([]*raftpb.Message{message(raftpb.MsgHeartbeat, 1, 2, 1)})
		select {
		case <-beats:
		case <-time.After(20 * time.Second):
			t.Fatal("a heartbeat waits for entries")
		}
	}
	l := a.peer(2).bulk
	l.mu.Lock()
	queued := l.bytes
	l.mu.Unlock()
	if queued > 8<<20 {
		t.Fatalf("%d bytes queued", queued)
	}
}

func TestStatusNewestWins(t *testing.T) {
	a, b := startNode(t, 1, nil), startNode(t, 2, nil)
	a.SetPeers(map[uint64]string{2: b.Addr()})
	for i := range 100 {
		a.Broadcast(fmt.Appendf(nil, "%d", i))
	}
	eventually(t, "the newest status", func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		return string(b.statuses[1]) == "99"
	})
}

func TestRequests(t *testing.T) {
	a, b := startNode(t, 1, nil), startNode(t, 2, nil)
	hang := make(chan struct{})
	b.onRequest = func(ctx context.Context, from uint64, kind uint8, body []byte) ([]byte, error) {
		switch kind {
		case 1:
			return append(fmt.Appendf(nil, "%d:", from), body...), nil
		case 2:
			return nil, errors.New("it cannot be done")
		case 3:
			<-ctx.Done()
			return nil, ctx.Err()
		case 4:
			return make([]byte, MaxRequestBytes+1), nil
		}
		<-hang
		return nil, nil
	}
	if _, err := a.Request(within(t, 20*time.Second), 2, 1, nil); !errors.Is(err, ErrUnknownPeer) {
		t.Fatal(err)
	}
	connect(a, b)
	big := bytes.Repeat([]byte("x"), MaxRequestBytes-10)
	if got, err := a.Request(within(t, 20*time.Second), 2, 1, big); err != nil || len(got) != len(big)+2 {
		t.Fatal(len(got), err)
	}
	var remote *RemoteError
	if _, err := a.Request(within(t, 20*time.Second), 2, 2, nil); !errors.As(err, &remote) ||
		remote.Text != "it cannot be done" {
		t.Fatal(err)
	}
	if _, err := a.Request(within(t, 30*time.Millisecond), 2, 3, nil); !errors.Is(err, context.DeadlineExceeded) &&
		!errors.As(err, &remote) {
		t.Fatal(err)
	}
	if _, err := a.Request(within(t, 20*time.Second), 2, 4, nil); !errors.Is(err, ErrTooLarge) {
		t.Fatal(err)
	}
	if _, err := a.Request(within(t, 20*time.Second), 2, 1, make([]byte, MaxRequestBytes+1)); !errors.Is(err, ErrTooLarge) {
		t.Fatal(err)
	}
	// A request holds its slot until its handler has ended and the answer is written: the one that was not waited for
	// any longer has as much time at the peer from its arrival on, and the one that was answered last may not have
	// given its slot back yet.
	eventually(t, "all slots are free", func() (free bool) {
		b.on(1, controlStream, func(in *inbound) { free = in.requests == 0 })
		return free
	})
	// Too many at once are refused, not queued without end.
	results := make(chan error, 2*maxRequestsPerPeer)
	for range 2 * maxRequestsPerPeer {
		go func() {
			_, err := a.Request(within(t, 20*time.Second), 2, 9, nil)
			results <- err
		}()
	}
	for range maxRequestsPerPeer {
		if err := <-results; !errors.Is(err, ErrBusy) {
			t.Fatal(err)
		}
	}
	close(hang)
	for range maxRequestsPerPeer {
		if err := <-results; err != nil {
			t.Fatal(err)
		}
	}
}

func TestRequestEndsWithTheConnection(t *testing.T) {
	a, b := startNode(t, 1, nil), startNode(t, 2, nil)
	started := make(chan struct{})
	b.onRequest = func(ctx context.Context, _ uint64, _ uint8, _ []byte) ([]byte, error) {
		close(started)
		<-ctx.Done()
		return nil, ctx.Err()
	}
	connect(a, b)
	result := make(chan error)
	go func() {
		_, err := a.Request(within(t, 20*time.Second), 2, 1, nil)
		result <- err
	}()
	<-started
	b.close()
	if err := <-result; !errors.Is(err, ErrNotConnected) {
		t.Fatal(err)
	}
}

// A broken connection to a living process is repaired, and no death is reported.
func TestBrokenConnectionIsNotADeath(t *testing.T) {
	c := &cable{}
	a, b := startNode(t, 1, func(cfg *Config) { cfg.Dial = c.dial }), startNode(t, 2, nil)
	connect(a, b)
	for range 5 {
		c.cut(nil)
		eventually(t, "connected again", func() bool {
			c.mu.Lock()
			defer c.mu.Unlock()
			return len(c.conns) >= 2 && a.Connected(2)
		})
	}
	if h := a.history(); len(h) != 1 || h[0] != "up 2" {
		t.Fatalf("%q", h)
	}
	c.cut(errors.New("no route"))
	eventually(t, "down", func() bool { return a.lastDown() != nil })
	var down *DownError
	if !errors.As(a.lastDown(), &down) || down.Refused || down.Gone() || down.Peer != 2 {
		t.Fatalf("%#v", a.lastDown())
	}
	c.cut(nil)
	eventually(t, "up again", func() bool { return len(a.history()) == 3 })
}

// A refusal in the name of a process that still talks to us is no proof of its death.
func TestRefusalInTheNameOfALivingPeer(t *testing.T) {
	c := &cable{}
	a, b := startNode(t, 1, func(cfg *Config) { cfg.Dial = c.dial }), startNode(t, 2, nil)
	connect(a, b)
	eventually(t, "the peer's connection is known here", func() bool { return a.stillDials(2) })
	c.cut(fmt.Errorf("dial: %w", syscall.ECONNREFUSED))
	eventually(t, "down", func() bool { return a.lastDown() != nil })
	var down *DownError
	if !errors.As(a.lastDown(), &down) || !down.Refused || !down.Alive || down.Gone() {
		t.Fatalf("%v", a.lastDown())
	}
}

// Nor is one where the peer is said to be by now, while it lives where it was.
func TestRefusalElsewhere(t *testing.T) {
	x, y := &cable{}, &cable{}
	a, b := startNode(t, 1, func(cfg *Config) { cfg.Dial = x.dial }),
		startNode(t, 2, func(cfg *Config) { cfg.Dial = y.dial })
	connect(a, b)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nobody := l.Addr().String()
	l.Close()
	a.peer(2).hear(&a.peer(2).where.said, nobody, true)
	y.cut(errors.New("no route")) // nothing of it proves that it lives
	eventually(t, "it dials no more", func() bool { return !b.Connected(1) })
	x.cut(nil)
	eventually(t, "connected again", func() bool {
		x.mu.Lock()
		defer x.mu.Unlock()
		return len(x.conns) >= 2 && a.Connected(2)
	})
	if h := a.history(); len(h) != 1 || h[0] != "up 2" {
		t.Fatalf("%q: %v", h, a.lastDown())
	}
}

func TestRestartedPeerIsNoticed(t *testing.T) {
	c := &cable{patient: true} // the redial finds the new process
	a, b := startNode(t, 1, func(cfg *Config) { cfg.RedialLimit, cfg.Dial = 10*time.Second, c.dial }), startNode(t, 2, nil)
	connect(a, b)
	addr := b.Addr()
	b.close()
	startNode(t, 2, func(cfg *Config) { cfg.Listen = addr })
	eventually(t, "down and up", func() bool { return strings.Join(a.history(), ", ") == "up 2, down 2, up 2" })
	var down *DownError
	if !errors.As(a.lastDown(), &down) || !errors.Is(down, ErrRestarted) || !down.Gone() {
		t.Fatalf("%v", a.lastDown())
	}
}

func TestRemovedPeer(t *testing.T) {
	a, b := startNode(t, 1, nil), startNode(t, 2, nil)
	a.SetPeers(map[uint64]string{2: b.Addr()})
	eventually(t, "up", func() bool { return len(a.history()) == 1 })
	// b learned of a by its connection and dialed back, although it was not told to.
	eventually(t, "dialed back", func() bool { return b.Connected(1) })
	a.SetPeers(nil)
	eventually(t, "down", func() bool { return errors.Is(a.lastDown(), ErrRemoved) })
}

// A node that was taken out while it runs comes back as a stranger, and hears the status that says so.
func TestRemovedPeerIsTold(t *testing.T) {
	a, b := startNode(t, 1, nil), startNode(t, 2, nil)
	connect(a, b)
	a.SetPeers(nil)
	eventually(t, "down and up", func() bool { return strings.Join(a.history(), ", ") == "up 2, down 2, up 2" })
	a.Broadcast([]byte("you are out"))
	eventually(t, "the status", func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		return string(b.statuses[1]) == "you are out"
	})
}

// A peer that has moved is dialed where it says that it is, and found again at another of its addresses when it is not
// there.
func TestMovedPeer(t *testing.T) {
	a, b := startNode(t, 1, nil), startNode(t, 2, nil)
	connect(a, b)
	old := b.Addr()
	b.close()
	eventually(t, "down", func() bool { return a.lastDown() != nil })
	b = startNode(t, 2, nil)
	b.SetPeers(map[uint64]string{1: a.Addr()})
	eventually(t, "found where it says", func() bool { return a.Connected(2) && b.Connected(1) })
	a.SetPeers(map[uint64]string{2: old}) // settings that know nothing of it
	if got := a.peer(2).address(); got != b.Addr() {
		t.Errorf("it is looked for at %s", got)
	}

	// Both have moved, so neither can tell the other. One of them is told from outside.
	a.close()
	b.close()
	a, b = startNode(t, 1, nil), startNode(t, 2, nil)
	a.SetKnown(map[uint64]string{2: b.Addr()})
	a.SetPeers(map[uint64]string{2: old})
	b.SetPeers(map[uint64]string{1: old})
	eventually(t, "found", func() bool { return a.Connected(2) && b.Connected(1) })
}

// A node that learns of a peer from its hello can answer it, and forgets it when it goes.
func TestUnknownPeerIsAnswered(t *testing.T) {
	a, b := startNode(t, 1, func(c *Config) { c.Listen = "0.0.0.0:0" }), startNode(t, 2, nil)
	a.SetPeers(map[uint64]string{2: b.Addr()})
	eventually(t, "dialed back", func() bool { return b.Connected(1) })
	b.Send([]*raftpb.Message{message(raftpb.MsgHeartbeatResp, 2, 1, 1)})
	eventually(t, "the answer", func() bool { return len(a.received()) == 1 })
	a.close()
	eventually(t, "forgotten", func() bool { return b.peer(1) == nil })
}

func TestSnapshotStatusIsReported(t *testing.T) {
	a, b := startNode(t, 1, nil), startNode(t, 2, nil)
	snap := message(raftpb.MsgSnap, 1, 2, 0)
	snap.Snapshot = &raftpb.Snapshot{Data: []byte("boundary"), Metadata: &raftpb.SnapshotMetadata{Index: new(uint64(7)),
		Term: new(uint64(2))}}
	a.Send([]*raftpb.Message{snap})
	connect(a, b)
	a.Send([]*raftpb.Message{snap})
	eventually(t, "both reports", func() bool {
		a.mu.Lock()
		defer a.mu.Unlock()
		return len(a.snaps) == 2 && !a.snaps[0] && a.snaps[1]
	})
	eventually(t, "the snapshot", func() bool { return len(b.received()) == 1 })
	if got := b.received()[0].GetSnapshot(); string(got.GetData()) != "boundary" || got.GetMetadata().GetIndex() != 7 {
		t.Fatalf("%v", got)
	}
}

// TestPortInUse: the advice is the one that the API's port gives.
func TestPortInUse(t *testing.T) {
	l, err := ListenTCP("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, err = New(Config{ID: 1, Cluster: testCluster, Listen: l.Addr().String(), TLS: tlsOf(bundle(t, testCA(), 1)),
		Handler: &node{}, Loop: newLoop(t)})
	if err == nil ||
		!strings.Contains(err.Error(), "is in use; stop what listens there or set another one in [peer] listen") {
		t.Errorf("error %v", err)
	}
}

// runChild is a node in a process of its own: TestKilledPeerIsSeenAtOnce kills it.
func runChild(dir string) {
	b, err := pki.LoadBundle(dir)
	if err != nil {
		fmt.Println("error", err)
		os.Exit(1)
	}
	n := &node{statuses: map[uint64][]byte{}}
	l, err := loop.New(time.Minute)
	if err != nil {
		fmt.Println("error", err)
		os.Exit(1)
	}
	tr, err := New(Config{ID: 2, Cluster: testCluster, Listen: "127.0.0.1:0", TLS: tlsOf(b), Handler: n, Loop: l})
	if err != nil {
		fmt.Println("error", err)
		os.Exit(1)
	}
	l.Start()
	tr.SetPeers(map[uint64]string{1: os.Getenv("TRANSPORT_TEST_PARENT")})
	fmt.Println("listening", tr.Addr())
	time.Sleep(time.Minute) // the parent kills it long before; this is for a parent that dies
	os.Exit(1)
}

// The end of a process is seen by the end of its connections: here no ping and no silence would tell of it in time.
func TestKilledPeerIsSeenAtOnce(t *testing.T) {
	dir := t.TempDir()
	if err := bundle(t, testCA(), 2).Save(dir); err != nil {
		t.Fatal(err)
	}
	a := startNode(t, 1, func(c *Config) { c.PingInterval, c.IdleLimit, c.StallLimit = time.Hour, time.Hour, time.Hour })
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "TRANSPORT_TEST_CHILD="+dir, "TRANSPORT_TEST_PARENT="+a.Addr())
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var word, addr string
	if _, err := fmt.Fscan(out, &word, &addr); err != nil || word != "listening" {
		t.Fatal(word, addr, err)
	}
	a.SetPeers(map[uint64]string{2: addr})
	eventually(t, "connected", func() bool { return a.Connected(2) && a.RTT(2).Samples > 0 })
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "down", func() bool { return a.lastDown() != nil })
	var down *DownError
	if !errors.As(a.lastDown(), &down) || !down.Refused || !down.Gone() {
		t.Fatal(a.lastDown())
	}
	_ = cmd.Wait() // killed
}

func benchmarkSend(b *testing.B, size int) {
	x, y := startNode(b, 1, nil), startNode(b, 2, nil)
	got := make(chan int, 1<<16)
	y.onRaft = func(m *raftpb.Message) { got <- len(m.GetEntries()) }
	connect(x, y)
	data := make([]byte, size)
	b.SetBytes(int64(size))
	b.ReportAllocs()
	b.ResetTimer()
	const window = 32 // less than the queue holds, or it drops
	for i := range b.N {
		if i >= window {
			<-got
		}
		x.Send([]*raftpb.Message{message(raftpb.MsgApp, 1, 2, 1, data)})
	}
	for range min(b.N, window) {
		<-got
	}
}

func BenchmarkSend(b *testing.B) {
	for _, size := range []int{200, 2 << 10, 64 << 10, 1 << 20} {
		b.Run(fmt.Sprintf("bytes=%d", size), func(b *testing.B) { benchmarkSend(b, size) })
	}
}

// BenchmarkRoundTrip is a message and its answer, each sent by the handler of the one before.
func BenchmarkRoundTrip(b *testing.B) {
	x, y := startNode(b, 1, nil), startNode(b, 2, nil)
	done := make(chan struct{})
	y.onRaft = func(*raftpb.Message) { y.Send([]*raftpb.Message{message(raftpb.MsgAppResp, 2, 1, 1)}) }
	m := []*raftpb.Message{message(raftpb.MsgApp, 1, 2, 1, make([]byte, 1800))}
	left := b.N
	x.onRaft = func(*raftpb.Message) {
		if left--; left == 0 {
			close(done)
			return
		}
		x.Send(m)
	}
	connect(x, y)
	b.ReportAllocs()
	b.ResetTimer()
	x.Send(m)
	<-done
}
