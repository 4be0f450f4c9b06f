package node

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"trireme/internal/base/systemd"
)

// TestWatchdogIsFedOnProof: each look that the node passes feeds the manager once, one that it fails does not, and
// while no node runs it is fed.
func TestWatchdogIsFedOnProof(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "notify")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	t.Setenv("NOTIFY_SOCKET", socket)
	t.Setenv("WATCHDOG_USEC", strconv.Itoa(int(20*time.Millisecond/time.Microsecond)))
	w := &watchdog{manager: systemd.FromEnvironment()}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	// Passed, failed, failed, passed, and then no node.
	answers := []error{nil, errStandsStill, errors.New("raft"), nil}
	asked := 0
	proof := func(context.Context) error {
		err := answers[asked]
		if asked++; asked == len(answers) {
			w.watch(nil)
			cancel()
		}
		return err
	}
	w.proof.Store(&proof)
	w.feed(ctx, slog.New(slog.DiscardHandler))
	if err := w.look(t.Context(), time.Second); err != nil {
		t.Errorf("no node is to prove anything: %v", err)
	}
	w.manager.Status("end")
	fed := 0
	for b := make([]byte, 100); ; {
		_ = conn.SetReadDeadline(time.Now().Add(10 * time.Second))
		n, err := conn.Read(b)
		if err != nil {
			t.Fatal(err)
		}
		if string(b[:n]) == "STATUS=end" {
			break
		}
		fed++
	}
	if fed != 2 || asked != len(answers) {
		t.Errorf("fed %d times in %d looks", fed, asked)
	}
}

// TestProofIsATurn: a node whose loop does not turn has no proof, however often it is asked.
func TestProofIsATurn(t *testing.T) {
	n := newTestNode(t)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err := n.getsOn(ctx); !errors.Is(err, errStandsStill) {
		t.Errorf("it makes progress: %v", err)
	}
}
