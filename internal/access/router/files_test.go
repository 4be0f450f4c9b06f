package router

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"testing"
)

// A router refuses connections before its process runs out of descriptors, and says what to do about it: to who starts
// it, and to the client.
func TestOpenFilesBoundConnections(t *testing.T) {
	before := openFiles
	t.Cleanup(func() { openFiles = before })
	for _, c := range []struct {
		limit    uint64
		max      int
		split    string
		want     int
		warnings int
	}{
		{40, 100, "", 10, 1},               // half of few
		{40, 10, "", 10, 0},                // they suffice
		{40, 100, "127.0.0.1:0", 6, 1},     // a session may have two servers
		{4024, 10_000, "", 1500, 1},        // less what is reserved
		{1 << 20, 10_000, "", 10_000, 0},   // the packages' units
		{1<<64 - 1, 10_000, "", 10_000, 0}, // no limit
	} {
		t.Run(fmt.Sprintf("%d of %d", c.max, c.limit), func(t *testing.T) {
			openFiles = func() uint64 { return c.limit }
			var log bytes.Buffer
			r := start(t, Config{MaxConns: c.max, SplitListen: c.split,
				Logger: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelWarn}))})
			if n := strings.Count(log.String(), "LimitNOFILE"); n != c.warnings {
				t.Errorf("%d warnings: %s", n, log.String())
			}
			leader := newServer(t, "n1")
			rw := leader.target("1")
			r.SetView(View{RW: &rw})
			if r.cfg.MaxConns != c.want {
				t.Fatalf("%d connections, want %d", r.cfg.MaxConns, c.want)
			}
			if c.want > 20 {
				return
			}
			for range c.want {
				dial(t, r.RWAddr()).greeting()
			}
			said, _ := io.ReadAll(dial(t, r.RWAddr()))
			if len(said) < 7 || said[4] != 0xff || int(said[5])|int(said[6])<<8 != 1040 ||
				strings.Contains(string(said), "LimitNOFILE") != (c.warnings > 0) {
				t.Errorf("one more is told %q", said)
			}
		})
	}
}

// A connection that says nothing takes no descriptors but those of its two sockets.
func TestIdleConnectionHoldsItsSockets(t *testing.T) {
	leader := newServer(t, "n1")
	r := start(t, Config{})
	rw := leader.target("1")
	r.SetView(View{RW: &rw})
	files := func() int {
		entries, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Skip(err)
		}
		return len(entries)
	}
	const conns = 50
	before := files()
	for range conns {
		dial(t, r.RWAddr()).greeting()
	}
	// sockets of client, router and server, and the pipe through which the server that stands in for mysqld echoes
	const each = 4 + 2
	eventually(t, "nothing but these is open", func() bool { return files()-before <= each*conns+conns/10 })
}
