package dump

import (
	"bytes"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"trireme/internal/mysql/gtid"
	"trireme/internal/mysql/mysqlwire"
)

// A client without the password, or one that does not speak MySQL's protocol, gets nothing of the log.
func TestFeedLetsNobodyElseIn(t *testing.T) {
	f := newFeed(t, newScript(1).log, nil)
	ctx := limit(t, 30*time.Second)
	dial := func() net.Conn {
		t.Helper()
		nc, err := net.Dial("tcp", f.Addr())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { nc.Close() })
		_ = nc.SetDeadline(time.Now().Add(20 * time.Second))
		return nc
	}
	for _, who := range []mysqlwire.ClientConfig{{User: "feed", Password: "wrong"}, {User: "feed"},
		{User: "root", Password: feedPassword}, {}} {
		if _, err := mysqlwire.Login(ctx, dial(), who); !mysqlwire.IsServerCode(err, mysqlwire.CodeAccessDenied) {
			t.Errorf("%+v: %v", who, err)
		}
	}
	for name, text := range map[string][]byte{
		"HTTP":             []byte("GET / HTTP/1.1\r\n\r\n"),
		"a huge packet":    append([]byte{0xFF, 0xFF, 0xFF, 1}, make([]byte, 64)...),
		"a dump, no login": framed(append([]byte{mysqlwire.ComBinlogDumpGTID}, dumpArgument(5, gtid.Set{})...)),
		"nothing":          nil,
	} {
		nc := dial()
		if _, err := nc.Write(text); err != nil {
			t.Fatal(err)
		}
		_ = nc.(*net.TCPConn).CloseWrite()
		got, _ := io.ReadAll(nc) // the greeting, and perhaps a refusal
		if len(got) > 300 || bytes.Contains(got, []byte("trireme-9-")) {
			t.Errorf("%s got %d bytes: %q", name, len(got), got)
		}
	}
	eventuallyNoConns(t, f)
	if _, err := loggedIn(t, f).QueryRow(ctx, "SELECT @@GLOBAL.GTID_MODE"); err != nil {
		t.Errorf("afterwards: %v", err)
	}
}

// eventuallyNoConns waits until the feed serves no client.
func eventuallyNoConns(t *testing.T, f *Feed) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); ; <-time.After(5 * time.Millisecond) {
		n := len(f.slots)
		if n == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d connections are left", n)
		}
	}
}

// What the feed does not serve is refused by its name, and the connection goes on; a set from the future gets the
// stream from nowhere: there is nothing that it lacks.
func TestFeedServesOnlyReceivers(t *testing.T) {
	f := newFeed(t, newScript(1).log, nil)
	c := loggedIn(t, f)
	for command := range byte(0x40) {
		switch command {
		case mysqlwire.ComQuit, mysqlwire.ComPing, mysqlwire.ComQuery, mysqlwire.ComRegisterSlave, mysqlwire.ComBinlogDump,
			mysqlwire.ComBinlogDumpGTID:
			continue
		}
		if err := c.WriteCommand(command, []byte("x")); err != nil {
			t.Fatal(err)
		}
		if _, err := nextEvent(t, c); !mysqlwire.IsServerCode(err, mysqlwire.CodeUnknownCommand) {
			t.Fatalf("command %#x: %v", command, err)
		}
	}
	for _, sql := range []string{"SELECT * FROM mysql.user", "SHOW BINARY LOGS", "KILL 1", strings.Repeat("x", 1<<20)} {
		if _, err := c.Exec(limit(t, 10*time.Second), sql); !mysqlwire.IsServerCode(err, mysqlwire.CodeNotSupported) {
			t.Fatalf("%.20s: %v", sql, err)
		}
	}
}

// A crowd that says nothing, or announces much, is bounded in number and memory, is told of in few lines, and leaves
// nothing.
func TestFeedCrowd(t *testing.T) {
	var log counting
	f, err := NewFeed(FeedConfig{Listen: "127.0.0.1:0", User: "feed", Password: feedPassword, UID: os.Getuid(),
		ServerID: 1<<20 + 1, ServerUUID: fakeUUID,
		Logger: slog.New(slog.NewTextHandler(&log, nil))}, newScript(1).log)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	runtime.GC()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	var conns []net.Conn
	for range 20 * maxConnections {
		nc, err := net.Dial("tcp", f.Addr())
		if err != nil {
			t.Fatal(err)
		}
		defer nc.Close()
		_, _ = nc.Write([]byte{0xFE, 0xFF, 0xFF, 1, 1, 2, 3}) // 16 MiB, of which three bytes come
		conns = append(conns, nc)
	}
	for _, nc := range conns { // a greeting or the end: the feed has seen them all before they go
		if err := nc.SetReadDeadline(time.Now().Add(20 * time.Second)); err != nil {
			t.Fatal(err)
		}
		if _, err := nc.Read(make([]byte, 1)); errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatal("a connection has no answer")
		}
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	if more := int64(after.HeapAlloc) - int64(before.HeapAlloc); more > maxConnections*4<<20 {
		t.Errorf("%d MiB are in use", more>>20)
	}
	for _, nc := range conns {
		_ = nc.Close()
	}
	eventuallyNoConns(t, f)
	if n := log.count("\n"); n < 1 || n > 4 {
		t.Errorf("%d lines about one crowd", n)
	}
	if err := loggedIn(t, f).Ping(limit(t, 10*time.Second)); err != nil {
		t.Error(err)
	}
}

// Another user of the host, who can reach the feed's port as everybody there can, takes no place at it: with all that
// he may open, mysqld is let in.
func TestFeedIsForMysqldsUser(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can be another user")
	}
	f := newFeed(t, newScript(1).log, nil)
	stranger := func() net.Conn {
		runtime.LockOSThread() // a socket belongs to the user for files of the thread that makes it
		defer runtime.UnlockOSThread()
		_, err := unix.SetfsuidRetUid(65534)
		if err == nil {
			defer func() { _, _ = unix.SetfsuidRetUid(0) }()
		}
		nc, derr := net.Dial("tcp", f.Addr())
		if err := errors.Join(err, derr); err != nil {
			t.Fatal(err)
		}
		return nc
	}
	for range maxConnections + 1 {
		nc := stranger()
		defer func() { _ = nc.Close() }()
		_ = nc.SetReadDeadline(time.Now().Add(10 * time.Second))
		if n, err := nc.Read(make([]byte, 1)); n > 0 || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("another user was served: %v", err)
		}
	}
	if err := loggedIn(t, f).Ping(limit(t, 10*time.Second)); err != nil {
		t.Error(err)
	}
}

// counting is a log that can be searched.
type counting struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (c *counting) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.b.Write(p)
}

func (c *counting) count(what string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return strings.Count(c.b.String(), what)
}
