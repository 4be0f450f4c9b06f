//go:build failpoints

package failpoint

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestMain lets a test start this program as a daemon that passes a point again and again.
func TestMain(m *testing.M) {
	if dir := os.Getenv("FAILPOINT_TEST_DIR"); dir != "" {
		if err := Start(dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(2)
		}
		for range 100 {
			Hit("ack.before")
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// daemon runs this program in dir with env, and returns how it ended and what it noted.
func daemon(t *testing.T, dir, env string) (syscall.WaitStatus, string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe")
	cmd.Env = append(os.Environ(), "FAILPOINT_TEST_DIR="+dir, envArm+"="+env)
	cmd.Stderr = t.Output()
	_ = cmd.Run()
	fired, _ := os.ReadFile(filepath.Join(dir, fireFile))
	return cmd.ProcessState.Sys().(syscall.WaitStatus), string(fired)
}

func TestArm(t *testing.T) {
	for _, bad := range []string{"ack.before", "ack.before=", "ack.before=jump", "ack.nowhere=kill", "ack.before=kill@0",
		"ack.before=delay:x"} {
		if err := arm(bad); err == nil {
			t.Errorf("%q was taken", bad)
		}
	}
	dir := t.TempDir()
	if ws, fired := daemon(t, dir, ""); ws.ExitStatus() != 0 || fired != "" {
		t.Errorf("nothing armed: %v, %q", ws, fired)
	}
	if ws, fired := daemon(t, dir, "ack.before=kill@100"); ws.Signal() != syscall.SIGKILL || fired != "ack.before=kill\n" {
		t.Errorf("the 100th of 100 hits: %v, %q", ws, fired)
	}
	dir = t.TempDir()
	if ws, fired := daemon(t, dir, "ack.before=kill@101;ack.after=kill"); ws.ExitStatus() != 0 || fired != "" {
		t.Errorf("the 101st of 100 hits: %v, %q", ws, fired)
	}
	if err := os.WriteFile(filepath.Join(dir, armFile), []byte("ack.after=pause\nack.before=kill\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if ws, _ := daemon(t, dir, ""); ws.Signal() != syscall.SIGKILL {
		t.Errorf("armed by file: %v", ws)
	}
	if ws, _ := daemon(t, dir, ""); ws.ExitStatus() != 0 {
		t.Errorf("the start after that: %v", ws)
	}
}

func TestActions(t *testing.T) {
	points.dir = t.TempDir()
	for _, spec := range []string{"ack.before=error@2", "ack.after=delay:30ms", "raft.before-send=pause"} {
		if err := arm(spec); err != nil {
			t.Fatal(err)
		}
	}
	if err := Err("ack.before"); err != nil {
		t.Errorf("first hit: %v", err)
	}
	if err := Err("ack.before"); !errors.Is(err, ErrArmed) {
		t.Errorf("second hit: %v", err)
	}
	if err := Err("ack.before"); err != nil {
		t.Errorf("third hit: %v", err)
	}
	began := time.Now()
	if Hit("ack.after"); time.Since(began) < 30*time.Millisecond {
		t.Error("it did not wait")
	}
	passed := make(chan struct{})
	go func() {
		Hit("raft.before-send")
		close(passed)
	}()
	for deadline := time.Now().Add(10 * time.Second); !release("raft.before-send"); <-time.After(time.Millisecond) {
		select {
		case <-passed:
			t.Fatal("it did not wait to be released")
		default:
		}
		if time.Now().After(deadline) {
			t.Fatal("nothing waits")
		}
	}
	<-passed
}

func TestSocket(t *testing.T) {
	dir := t.TempDir()
	if err := Start(dir); err != nil {
		t.Fatal(err)
	}
	c, err := net.Dial("unix", filepath.Join(dir, sockFile))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	in := bufio.NewScanner(c)
	for _, q := range []struct{ ask, want string }{
		{"arm seed.begin=error", "ok"}, {"hits seed.begin", "0"}, {"disarm", "ok"}, {"release seed.begin", "error: "},
		{"what", "error: "}, {"clock jump 3h", "ok"}, {"clock rate 0", "error: "},
	} {
		if _, err := fmt.Fprintln(c, q.ask); err != nil {
			t.Fatal(err)
		}
		if !in.Scan() || !strings.HasPrefix(in.Text(), q.want) {
			t.Errorf("%q: %q, want %q", q.ask, in.Text(), q.want)
		}
	}
	if err := Err("seed.begin"); err != nil {
		t.Errorf("disarmed: %v", err)
	}
}

func TestClock(t *testing.T) {
	if err := openClock(t.TempDir()); err != nil {
		t.Fatal(err)
	}
	defer page.Store(nil)
	real := int64(5 * time.Minute)
	if got := Clock(real); got != real+int64(ahead) {
		t.Errorf("a new clock shows %d", got)
	}
	p := page.Load()
	for _, ppm := range []int64{900_000, evenPPM, 1_100_000} {
		p.since.Store(real)
		p.base.Store(int64(time.Hour))
		p.ppm.Store(ppm)
		year := int64(365 * 24 * time.Hour)
		if got, want := Clock(real+year)-int64(time.Hour), year/evenPPM*ppm; got != want {
			t.Errorf("rate %d: a year lasts %d, want %d", ppm, got, want)
		}
		for _, d := range []int64{-int64(time.Minute), 0, 1, int64(time.Hour)} {
			if got := Clock(Real(int64(time.Hour) + d)); got-int64(time.Hour)-d > 2 || got-int64(time.Hour)-d < -2 {
				t.Errorf("rate %d: Clock(Real(x)) is %d off", ppm, got-int64(time.Hour)-d)
			}
		}
	}
	before := Clock(0)
	if err := changeClock(-2*time.Hour, 0); err != nil {
		t.Fatal(err)
	}
	if jumped := Clock(0) - before; jumped > -int64(2*time.Hour)+10 || jumped < -int64(2*time.Hour)-10 {
		t.Errorf("it jumped by %v", time.Duration(jumped))
	}
}
