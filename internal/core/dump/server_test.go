package dump

import (
	"context"
	"errors"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"trireme/internal/mysql/gtid"
	"trireme/lab/testkit"
)

// testServer is a real mysqld of a test.
type testServer struct {
	*testkit.Server
	t    *testing.T
	id   uint32
	uuid gtid.UUID
}

const (
	testUser     = "repl"
	testPassword = "r-Secret1"
)

// newServer makes the directories of a server and does not start it.
func newServer(t *testing.T, id uint32, options ...string) *testServer {
	t.Helper()
	options = append([]string{fmt.Sprintf("--server-id=%d", id), "--log-replica-updates=OFF",
		"--replicate-same-server-id=ON",
		"--relay-log-recovery=ON", "--skip-replica-start=ON", "--max-connections=300", "--event-scheduler=OFF"}, options...)
	return &testServer{testkit.NewServer(t, options...), t, id, gtid.UUID{}}
}

// start begins a new incarnation with this server_uuid (S5).
func (s *testServer) start(uuid gtid.UUID) {
	s.t.Helper()
	s.uuid = uuid
	s.StartAs(uuid.String())
}

func (s *testServer) dial(ctx context.Context) (net.Conn, error) {
	return (&net.Dialer{}).DialContext(ctx, "unix", s.Socket())
}

// limit is a context that ends with the test, or after d.
func limit(t testing.TB, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

// eventually polls cond until it holds.
func eventually(t testing.TB, d time.Duration, what string, cond func() bool) {
	t.Helper()
	deadline := time.Now().Add(d)
	for !cond() {
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %s", d, what)
		}
		time.Sleep(2 * time.Millisecond)
	}
}

// sourceArgs are the settings of a leader: semi-sync that waits forever for one replica.
var sourceArgs = []string{"--plugin-load-add=semisync_source.so", "--rpl-semi-sync-source-enabled=1",
	"--rpl-semi-sync-source-timeout=4294967295", "--rpl-semi-sync-source-wait-for-replica-count=1",
	"--rpl-semi-sync-source-wait-no-replica=1", "--rpl-semi-sync-source-wait-point=AFTER_SYNC"}

func mysqlCode(err error) uint16 {
	var e *mysql.MySQLError
	if errors.As(err, &e) {
		return e.Number
	}
	return 0
}
