package robustness

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"trireme/internal/api"
	"trireme/internal/ops/demo"
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
		events, err := c.History(t.Context(), c.others(victim)[0])
		must(t, err)
		for _, e := range events {
			if e.Term > term && strings.Contains(e.Cause, "guard") {
				t.Errorf("the disk of the %s stalls, and the guard acts: %+v", d.what, e)
			}
		}
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

// TestStalledFollowerIsNotElected: a session on a follower locks a table for which its applier waits. That node lacks a
// single entry, and would lead for as long as the lock lasts without taking a write; the other follower has to.
func TestStalledFollowerIsNotElected(t *testing.T) {
	t.Parallel()
	c := lease(t)
	leader := c.healthy()
	followers := c.others(leader)
	slices.SortFunc(followers, func(a, b *demo.Node) int { return strings.Compare(a.Name, b.Name) })
	victim := followers[0] // with equal logs its lower id counts
	s := c.session(leader)
	s.exec("DROP DATABASE IF EXISTS stall", "CREATE DATABASE stall", "CREATE TABLE stall.t (id INT PRIMARY KEY)")
	c.caughtUp()
	lock := c.admin(victim)
	defer lock.close()
	must(t, lock.try("LOCK TABLES stall.t READ"))
	s.exec("INSERT INTO stall.t VALUES (1)")
	s.close()
	eventually(t, healLimit, victim.Name+" says that it applies nothing", func() error {
		v, err := c.View(t.Context())
		if err != nil {
			return err
		}
		for _, m := range v.Members {
			if m.Name == victim.Name && m.State == api.StateCatchingUp {
				return nil
			}
		}
		return errors.New("it does not")
	})
	c.crash(leader)
	eventually(t, steerLimit, followers[1].Name+" takes writes", func() error {
		v, err := c.View(t.Context())
		if err == nil && v.Leader != followers[1].Name {
			err = fmt.Errorf("%q leads", v.Leader)
		}
		return err
	})
	must(t, lock.try("UNLOCK TABLES"))
	c.healthy()
	s = c.session(c.leader())
	s.exec("DROP DATABASE stall")
	s.close()
}
