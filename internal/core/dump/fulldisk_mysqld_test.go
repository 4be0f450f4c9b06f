package dump

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"trireme/lab/child"
	"trireme/lab/faultfs"
	"trireme/lab/needs"
)

func TestMain(m *testing.M) {
	child.Main(faultfs.Server)
	os.Exit(m.Run())
}

// TestKilledFlush: mysqld ignores that a transaction of a commit group could not be written, unless it is the first of
// the group, and what it had in its buffer is gone: docs/mysql.md. A KILL on a full disk has it fail. The stream is
// taken for broken then, and no client after the gap hears OK.
func TestKilledFlush(t *testing.T) {
	t.Parallel()
	disk, err := faultfs.New(t.Context(), filepath.Join(t.TempDir(), "disk"), faultfs.Options{})
	if errors.Is(err, faultfs.ErrUnavailable) {
		needs.Cannot(t, err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { disk.Close() })
	inject := func(f ...faultfs.Fault) {
		t.Helper()
		if err := disk.Inject(f...); err != nil {
			t.Fatal(err)
		}
	}
	s, src := newLeader(t, SourceConfig{}, "--log-bin="+disk.Dir()+"/binlog")
	t.Cleanup(s.Kill) // before its disk goes
	if _, err := src.Attach(limit(t, 10*time.Second), freshStart); err != nil {
		t.Fatal(err)
	}
	broken := make(chan error, 1)
	go func() {
		broken <- src.Run(t.Context(), func(p Payload) bool {
			return src.Ack(p.Meta.Incarnation, p.Meta.End) == nil
		})
	}()
	s.Exec("CREATE DATABASE d")
	s.Exec("CREATE TABLE d.t (id INT PRIMARY KEY, v LONGTEXT)")
	commit := func(id, bytes int) (session int64, done <-chan error) {
		t.Helper()
		conn, err := s.DB.Conn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := conn.QueryRowContext(t.Context(), "SELECT CONNECTION_ID()").Scan(&session); err != nil {
			t.Fatal(err)
		}
		out := make(chan error, 1)
		go func() {
			_, err := conn.ExecContext(context.Background(), "INSERT INTO d.t VALUES (?, REPEAT('x', ?))", id, bytes)
			out <- err
		}()
		state := fmt.Sprintf("SELECT COUNT(*) FROM information_schema.processlist"+
			" WHERE id = %d AND state = 'waiting for handler commit'", session)
		eventually(t, 10*time.Second, "a commit is written", func() (waits bool) {
			s.Row(state, &waits)
			return waits
		})
		return session, out
	}
	// While the first is being written, the next two become a group.
	inject(faultfs.Fault{Path: "binlog.0*", Ops: faultfs.Write, Hang: true})
	_, first := commit(1, 100)
	_, second := commit(2, 500)
	session, third := commit(3, 20000)
	inject(faultfs.Full("binlog.0*"))
	arrives(t, first, "the first")
	eventually(t, 10*time.Second, "the group's leader finds no room", func() bool {
		hits, err := disk.Hits()
		return err == nil && hits[0] > 0
	})
	s.Exec(fmt.Sprintf("KILL QUERY %d", session))
	select {
	case err := <-broken:
		if !errors.Is(err, ErrInvariant) {
			t.Fatal(err)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("the stream goes on")
	}
	inject()
	stillWaits(t, second, 0, "the second, which is not in the binary log,")
	stillWaits(t, third, 100*time.Millisecond, "the third, which was killed,")
	var rows int
	if s.Row("SELECT COUNT(*) FROM d.t", &rows); rows != 1 {
		t.Errorf("%d rows, one was acknowledged", rows)
	}
}
