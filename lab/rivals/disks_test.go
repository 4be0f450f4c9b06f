package rivals

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"trireme/lab/faultfs"
	"trireme/lab/needs"
)

func startOnDisks(t *testing.T, l *Lab, name string, shape Shape) Running {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	system, err := Find(name)
	if err != nil {
		t.Fatal(err)
	}
	shape.Dir, shape.Variant = t.TempDir(), system.Variants[0]
	r, err := system.Start(ctx, l, shape)
	if errors.Is(err, faultfs.ErrUnavailable) {
		needs.Cannot(t, err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Stop(); err != nil {
			t.Error(err)
		}
	})
	return r
}

// TestPowerOfServer: a row that was committed at full durability is there after a power loss, and the server recovers
// by itself.
func TestPowerOfServer(t *testing.T) {
	r := startOnDisks(t, newLab(t), "standalone", Shape{Disks: true})
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	s := r.(*replication).servers[0]
	if err := s.exec(ctx, "CREATE TABLE sbtest.t (a INT PRIMARY KEY)", "INSERT INTO sbtest.t VALUES (1)"); err != nil {
		t.Fatal(err)
	}
	d := r.Disk("n1")
	if err := errors.Join(s.proc.Signal(syscall.SIGKILL), d.PowerOff()); err != nil {
		t.Fatal(err)
	}
	<-s.proc.Done()
	if _, err := os.ReadFile(filepath.Join(d.Dir(), "error.log")); err == nil {
		t.Error("the host's directory can be read without power")
	}
	err := d.PowerOn()
	if err == nil {
		s.proc, err = s.host.start(s.command)
	}
	if err == nil {
		err = s.waitUp(ctx)
	}
	if err != nil {
		t.Fatal(err)
	}
	var rows int
	if err := s.db.QueryRowContext(ctx, "SELECT COUNT(*) FROM sbtest.t").Scan(&rows); err != nil || rows != 1 {
		t.Errorf("%d rows, %v", rows, err)
	}
}

// TestTriremeOnDisks: every node of a cluster runs on a disk of its own.
func TestTriremeOnDisks(t *testing.T) {
	r := startOnDisks(t, newLab(t), "trireme-logger", Shape{Disks: true})
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"n1", "n2", "l1"} {
		d := r.Disk(name)
		if d == nil || !strings.Contains(string(mounts), " "+d.Dir()+" ") {
			t.Errorf("%s has no disk", name)
			continue
		}
		if content, err := os.ReadDir(d.Dir()); err != nil || len(content) == 0 {
			t.Errorf("%s does not live on its disk: %v %v", name, content, err)
		}
	}
}

// TestWhatMySQLSyncs guards what docs/mysql.md says of fsync.
func TestWhatMySQLSyncs(t *testing.T) {
	for _, method := range []string{"O_DIRECT", "fsync"} {
		t.Run(method, func(t *testing.T) {
			r := startOnDisks(t, newLab(t), "standalone",
				Shape{Disks: true, Options: map[string]string{"innodb_flush_method": method}})
			s, d := r.(*replication).servers[0], r.Disk("n1")
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			before := counts(t, d)
			if err := s.exec(ctx, "FLUSH BINARY LOGS", "CREATE DATABASE facts", "CREATE TABLE facts.t (a INT PRIMARY KEY)",
				"INSERT INTO facts.t VALUES (1)"); err != nil {
				t.Fatal(err)
			}
			after := counts(t, d)
			log := "data/binlog.000002"
			if after[log].Fsyncs == 0 || after["data"].Fsyncs != before["data"].Fsyncs {
				t.Errorf("a new binary log: %+v; its directory was synced %d times", after[log],
					after["data"].Fsyncs-before["data"].Fsyncs)
			}
			if w := after.Sum("*.dblwr"); w.Writes == 0 || w.Fsyncs > 0 && method == "O_DIRECT" {
				t.Errorf("doublewrite files: %+v", w)
			}
		})
	}
}

func counts(t *testing.T, d *faultfs.FS) faultfs.Counts {
	t.Helper()
	c, err := d.Counts()
	if err != nil {
		t.Fatal(err)
	}
	return c
}
