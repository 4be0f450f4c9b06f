package mysqld

import (
	"encoding/binary"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// futexRealtime is FUTEX_CLOCK_REALTIME: the deadline of a wait is a time of day.
const futexRealtime = 256

// waitsUntil reads from the kernel until when a thread that waits for a futex does so, by which clock.
func waitsUntil(pid, tid int) (deadline time.Time, realtime bool, err error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/syscall", pid, tid))
	if err != nil {
		return deadline, false, err
	}
	f := strings.Fields(string(b))
	if len(f) < 5 || f[0] != strconv.Itoa(unix.SYS_FUTEX) {
		return deadline, false, fmt.Errorf("thread %d does not wait for a futex: %s", tid, b)
	}
	op, err := strconv.ParseUint(f[2], 0, 64)
	if err != nil {
		return deadline, false, err
	}
	at, err := strconv.ParseUint(f[4], 0, 64)
	if err != nil || at == 0 {
		return deadline, false, fmt.Errorf("the wait has no deadline: %s", b)
	}
	mem, err := os.Open(fmt.Sprintf("/proc/%d/mem", pid))
	if err != nil {
		return deadline, false, err
	}
	defer func() { _ = mem.Close() }()
	ts := make([]byte, 16)
	if _, err := mem.ReadAt(ts, int64(at)); err != nil {
		return deadline, false, err
	}
	return time.Unix(int64(binary.NativeEndian.Uint64(ts)), int64(binary.NativeEndian.Uint64(ts[8:]))),
		op&futexRealtime != 0, nil
}

// TestWaitOutlastsClock: a commit waits for its acknowledgement until a time of day, at which mysqld would answer it OK
// and switch semi-sync off. It lies so far ahead that no clock which is set right, or wrong by decades, gets there.
func TestWaitOutlastsClock(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	s := started(t, initialized(t))
	if err := s.Admin().OpenWrites(ctx); err != nil {
		t.Fatal(err)
	}
	app := session(t, s, s.cfg.Admin)
	var id, tid int
	if err := app.row(ctx, []any{&id}, "SELECT CONNECTION_ID()"); err != nil {
		t.Fatal(err)
	}
	go func() { _ = app.exec(ctx, "CREATE DATABASE waits") }()
	eventually(t, "a commit waits", func() bool {
		w, err := s.Admin().WaitingSessions(ctx)
		return err == nil && w.Waiting == 1
	})
	if err := s.Admin().
		control.row(ctx, []any{&tid}, "SELECT THREAD_OS_ID FROM performance_schema.threads WHERE PROCESSLIST_ID = ?", id); err != nil {
		t.Fatal(err)
	}
	deadline, realtime, err := waitsUntil(s.Pid(), tid)
	if err != nil {
		t.Fatal(err)
	}
	left := time.Until(deadline)
	t.Logf("it waits until %v, a time of day: %v", deadline, realtime)
	if realtime && left < 50*365*24*time.Hour {
		t.Errorf("a clock that is set %v ahead makes mysqld answer OK", left.Round(time.Hour))
	}
}
