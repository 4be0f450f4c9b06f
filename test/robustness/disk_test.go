package robustness

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"trireme/internal/ops/demo"
	"trireme/lab/needs"
	"trireme/lab/verify"
)

// TestFullDisk fills the disks of a leader: of the raft log, and of mysqld's binary log. Leadership must move, nothing
// may be lost, the reason must be told, and the node must be back by itself when there is space. The disks are file
// systems in memory, of a limited size.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		cannot(t, "only root may mount a file system of a limited size")
	}
	c := lease(t)
	victim := c.others(c.healthy())[0]
	c.StopDaemon(victim)
	raft := c.mount(filepath.Join(victim.Dir, "raft"))
	binlog := c.mount(filepath.Join(victim.Dir, "mysql", "binlog"))
	c.start(victim)

	w := c.load(verify.Config{Writers: 8, Rate: steady()})
	c.lead(victim)
	term := c.view().Term
	c.writesMore(w, 20)

	// Nothing is left but the rest of the segment that is being written, below 1 MiB on this cluster, and perhaps the
	// next one: leadership moves by plan while that lasts, then the daemon ends, unless a purge makes room before.
	raft.fill()
	at := time.Now()
	c.writesAfter(w, term)
	t.Logf("the raft log's disk is full: leadership moved after %v, write gap %v", time.Since(at).Round(time.Millisecond),
		w.Meter().LongestGap(at).Length().Round(time.Millisecond))
	eventually(t, healLimit, victim.Name+" has no space", func() error {
		raft.fill()
		if pid := victim.DaemonPID(); pid != 0 {
			return fmt.Errorf("process %d runs", pid)
		}
		return nil
	})
	c.ends(victim, "no space")
	c.writesMore(w, 20)
	// The room of a segment that was made ahead is free when it starts again. Without it, it waits.
	eventually(t, healLimit, "the daemon waits for space", func() error {
		raft.fill()
		if victim.DaemonPID() == 0 {
			c.start(victim)
		}
		return c.tells(victim, "this node waits for space")
	})
	raft.empty()

	// mysqld waits for space in the middle of a commit and answers everything else.
	c.lead(victim)
	term = c.view().Term
	at = time.Now()
	binlog.fill()
	c.writesAfter(w, term)
	t.Logf("the binary log's disk is full: write gap %v", w.Meter().LongestGap(at).Length().Round(time.Millisecond))
	binlog.empty()
	c.healthy()
	t.Logf("%s", c.check(w))

	c.StopDaemon(victim)
	raft.remove(true)
	binlog.remove(false)
	c.start(victim)
}

// TestFullNode: all of a leader's disk is full while accounts are made. mysqld answers nothing then that it needs a
// login for, and the leader does not wait long for its answers before it hands over. It takes a minute: a cluster of
// its own, and loads of all kinds.
func TestFullNode(t *testing.T) {
	needs.Long(t)
	t.Parallel()
	if os.Geteuid() != 0 {
		cannot(t, "only root may mount a file system of a limited size")
	}
	c := createShape(t, shape{nodes: 3})
	victim := c.others(c.healthy())[0]
	c.StopDaemon(victim)
	all := c.mount(victim.Dir)
	c.start(victim)
	s, err := verify.NewSet(verify.SetConfig{Login: c.Routed(), Nodes: verify.Nodes(c)})
	must(t, err)
	must(t, s.Prepare(t.Context()))
	s.Start(t.Context())
	c.lead(victim)
	term := c.view().Term
	eventually(t, healLimit, "accounts are made", func() error {
		if got := s.Counts()["acl"].Acked; got < 20 {
			return fmt.Errorf("%d of 20", got)
		}
		return nil
	})
	all.fill()
	c.failedOver(term)
	b, err := os.ReadFile(c.LogFile(victim))
	must(t, err)
	all.empty()
	must(t, s.Stop())
	const limit = 9 * time.Second // what mysqld is waited for is 6 s in all, 12 s where each answer has 5 s
	if began, ended := lastAt(string(b), "switching over to"), lastAt(string(b), "handing over to"); ended.Sub(began) > limit {
		t.Errorf("the leader tried to move leadership by plan for %v", ended.Sub(began))
	}
	c.healthy()
}

// lastAt is the time of the last line of a daemon's log that says something; zero: none does.
func lastAt(log, what string) (at time.Time) {
	for line := range strings.Lines(log) {
		if text, ok := strings.CutPrefix(line, "time="); ok && strings.Contains(line, what) {
			text, _, _ = strings.Cut(text, " ")
			if t, err := time.Parse(time.RFC3339, text); err == nil {
				at = t
			}
		}
	}
	return at
}

// lead moves leadership to a node, as soon as it may have it: under load one that was away can lag again.
func (c *cluster) lead(n *demo.Node) {
	c.t.Helper()
	eventually(c.t, healLimit, n.Name+" takes over", func() error {
		if c.healthy() == n {
			return nil
		}
		_, err := c.Switchover(c.t.Context(), n.Name)
		return err
	})
}

// ends waits until a node's daemon has ended by itself, saying why.
func (c *cluster) ends(n *demo.Node, why string) {
	c.t.Helper()
	eventually(c.t, healLimit, n.Name+" ends", func() error {
		if pid := n.DaemonPID(); pid != 0 {
			return fmt.Errorf("process %d runs", pid)
		}
		return nil
	})
	must(c.t, c.tells(n, why))
}

// tells looks into a daemon's log.
func (c *cluster) tells(n *demo.Node, what string) error {
	b, err := os.ReadFile(c.LogFile(n))
	if err == nil && !strings.Contains(string(b), what) {
		err = errors.New("its log does not say: " + what)
	}
	return err
}

// disk is a file system in memory on a directory of a node, whose daemon does not run when it is mounted and removed.
type disk struct {
	c   *cluster
	dir string
}

const diskSpace = 160 << 20 // bytes free at the beginning

func (c *cluster) mount(dir string) *disk {
	c.t.Helper()
	d := &disk{c, dir}
	used := int64(0)
	must(c.t, filepath.Walk(dir, func(_ string, st os.FileInfo, err error) error {
		if err == nil && st.Mode().IsRegular() {
			used += st.Size() + 4096
		}
		return err
	}))
	must(c.t, os.Rename(dir, dir+".disk"))
	must(c.t, os.Mkdir(dir, 0o700))
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, fmt.Sprintf("size=%d", used+diskSpace)); err != nil {
		must(c.t, os.Remove(dir))
		must(c.t, os.Rename(dir+".disk", dir))
		cannot(c.t, fmt.Sprintf("no file system of a limited size can be mounted here: %v", err))
	}
	c.t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) }) // after a failure: the cluster goes too
	d.copy(dir+".disk", dir)
	return d
}

func (d *disk) copy(from, to string) {
	d.c.t.Helper()
	if out, err := exec.Command("cp", "-a", from+"/.", to).CombinedOutput(); err != nil {
		d.c.t.Fatalf("copying %s: %v: %s", from, err, out)
	}
}

// remove puts a directory of the real disk in place again, with what is there now if keep says so.
func (d *disk) remove(keep bool) {
	d.c.t.Helper()
	must(d.c.t, os.RemoveAll(d.dir+".disk"))
	must(d.c.t, os.Mkdir(d.dir+".disk", 0o700))
	if keep {
		d.copy(d.dir, d.dir+".disk")
	}
	must(d.c.t, unix.Unmount(d.dir, 0))
	must(d.c.t, os.Remove(d.dir))
	must(d.c.t, os.Rename(d.dir+".disk", d.dir))
}

func (d *disk) filler() string { return filepath.Join(d.dir, "filler") }

// fill leaves nothing free.
func (d *disk) fill() {
	d.c.t.Helper()
	f, err := os.OpenFile(d.filler(), os.O_CREATE|os.O_WRONLY, 0o600)
	must(d.c.t, err)
	defer f.Close()
	for range 100 { // a daemon writes meanwhile
		var st unix.Statfs_t
		must(d.c.t, unix.Fstatfs(int(f.Fd()), &st))
		free := int64(st.Bfree) * st.Bsize
		if free <= 0 {
			return
		}
		own, err := f.Stat()
		must(d.c.t, err)
		if err := unix.Fallocate(int(f.Fd()), 0, own.Size(), free); err != nil && !errors.Is(err, unix.ENOSPC) {
			d.c.t.Fatal(err)
		}
	}
	d.c.t.Fatalf("%s cannot be filled", d.dir)
}

func (d *disk) empty() {
	d.c.t.Helper()
	must(d.c.t, os.RemoveAll(d.filler())) // each start of mysqld empties the directory of its binary log
}
