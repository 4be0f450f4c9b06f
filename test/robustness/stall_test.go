package robustness

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"trireme/lab/verify"
)

// TestStalledDisk freezes the disks of a leader: of mysqld's binary log, whose writers cannot even be killed then, and
// of the raft log. Leadership must move without waiting for them, nothing may be lost, and the node must be back by
// itself when the disk goes on. The disks are file systems in files.
func TestStalledDisk(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		cannot(t, "only root may mount and freeze a file system")
	}
	c := lease(t)
	victim := c.others(c.healthy())[0]
	c.StopDaemon(victim)
	raft := c.mountFile(filepath.Join(victim.Dir, "raft"))
	binlog := c.mountFile(filepath.Join(victim.Dir, "mysql", "binlog"))
	c.start(victim)
	w := c.load(verify.Config{Writers: 8, Rate: steady()})
	for _, d := range []struct {
		what string
		disk *disk
	}{{"binary log", binlog}, {"raft log", raft}} {
		c.lead(victim)
		term := c.view().Term
		c.writesMore(w, 20)
		at := time.Now()
		thaw := d.disk.freeze()
		c.writesAfter(w, term)
		t.Logf("the disk of the %s stalls: leadership moved after %v, write gap %v", d.what, time.Since(at).
			Round(time.Millisecond),
			w.Meter().LongestGap(at).Length().Round(time.Millisecond))
		thaw()
		c.healthy()
	}
	t.Logf("%s", c.check(w))
	c.StopDaemon(victim)
	raft.remove(true)
	binlog.remove(false)
	c.start(victim)
	c.healthy()
}

// mountFile is mount with a file system that can be frozen.
func (c *cluster) mountFile(dir string) *disk {
	c.t.Helper()
	d := &disk{c, dir}
	image := dir + ".image"
	f, err := os.Create(image)
	must(c.t, err)
	must(c.t, errors.Join(f.Truncate(2*diskSpace), f.Close()))
	must(c.t, os.Rename(dir, dir+".disk"))
	must(c.t, os.Mkdir(dir, 0o700))
	for _, args := range [][]string{{"mkfs.ext4", "-q", "-F", image}, {"mount", "-o", "loop", image, dir},
		{"fsfreeze", "--version"}} {
		if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
			_ = unix.Unmount(dir, unix.MNT_DETACH)
			must(c.t, os.Remove(dir))
			must(c.t, os.Rename(dir+".disk", dir))
			cannot(c.t, fmt.Sprintf("no file system can be mounted from a file and frozen here: %v: %v: %s", args, err, out))
		}
	}
	c.t.Cleanup(func() {
		_ = unix.Unmount(dir, unix.MNT_DETACH) // after a failure: the cluster goes too
		_ = os.Remove(image)
	})
	must(c.t, os.Remove(filepath.Join(dir, "lost+found")))
	d.copy(dir+".disk", dir)
	return d
}

// freeze lets nothing be written any more, until the function that it returns is called; for a minute at most, whatever
// becomes of this test: what waits for a frozen disk cannot be killed.
func (d *disk) freeze() (thaw func()) {
	d.c.t.Helper()
	end := exec.Command("sh", "-c", `sleep 60; fsfreeze --unfreeze "$1"`, "sh", d.dir)
	end.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	must(d.c.t, end.Start())
	if out, err := exec.Command("fsfreeze", "--freeze", d.dir).CombinedOutput(); err != nil {
		d.c.t.Fatalf("freezing %s: %v: %s", d.dir, err, out)
	}
	thawed := false
	thaw = func() {
		if thawed {
			return
		}
		thawed = true
		if out, err := exec.Command("fsfreeze", "--unfreeze", d.dir).CombinedOutput(); err != nil {
			d.c.t.Errorf("unfreezing %s: %v: %s", d.dir, err, out)
		}
		_ = syscall.Kill(-end.Process.Pid, syscall.SIGKILL)
		_ = end.Wait()
	}
	d.c.t.Cleanup(thaw)
	return thaw
}
