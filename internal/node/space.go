package node

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"golang.org/x/sys/unix"

	"trireme/internal/api"
	"trireme/internal/base/poll"
	"trireme/internal/core/raftlog"
)

// Free space below which a node should not lead, and above which it may again; of the raft log's disk, besides the next
// segment, whose space is taken at once.
const (
	spaceLow      = 32 << 20 // bytes
	spaceEnough   = 64 << 20
	spaceInterval = 2 * time.Second
)

// freeSpace is what this process may still write below dir, in bytes.
func freeSpace(dir string) (uint64, error) {
	free, _, _, err := space(dir)
	return free, err
}

// space is freeSpace, the size of the file system of dir, and which one it is.
func space(dir string) (free, total uint64, id unix.Fsid, err error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return 0, 0, id, fmt.Errorf("free space of %s: %w", dir, err)
	}
	avail := st.Bavail
	if unix.Geteuid() == 0 {
		avail = st.Bfree
	}
	return avail * uint64(st.Bsize), st.Blocks * uint64(st.Bsize), st.Fsid, nil
}

// disks are the file systems of this node; log and data are often on the same.
func (n *Node) disks() (out []api.DiskView) {
	var first unix.Fsid
	for _, d := range []struct{ holds, path string }{{"log", n.cfg.RaftDir()}, {"data", n.cfg.MySQLDir()}} {
		free, total, id, err := space(d.path)
		switch {
		case err != nil: // a logger has no data
		case len(out) > 0 && id == first:
			out[0].Holds += ", " + d.holds
		default:
			first = id
			out = append(out, api.DiskView{Holds: d.holds, Path: d.path, FreeBytes: free, TotalBytes: total})
		}
	}
	return out
}

// awaitSpace waits until the raft log's disk has room for one more segment. A daemon that ended because it had none
// must not start mysqld and end again, over and over.
func awaitSpace(ctx context.Context, dir string, need uint64, log *slog.Logger) error {
	for said := false; ; said = true {
		free, err := logSpace(dir)
		if err != nil || free >= need {
			return err
		}
		if !said {
			log.Error("the disk is full: this node waits for space", "dir", dir, "free_mib", free>>20, "needed_mib", need>>20)
		}
		if err := poll.Pause(ctx, spaceInterval); err != nil {
			return fmt.Errorf("the disk of %s is full: %d MiB are free, %d are needed: %w", dir, free>>20, need>>20, err)
		}
	}
}

// watchSpace notes whether a disk of this node is nearly full: then another node should lead, as long as there is time
// to move leadership by plan.
func (n *Node) watchSpace(context.Context) {
	n.load.SetDisks(n.disks())
	n.mu.Lock()
	before := n.fullDir
	n.mu.Unlock()
	need := uint64(spaceLow)
	if before != "" {
		need = spaceEnough
	}
	fullDir := n.lowestSpace(need)
	if fullDir == before {
		return
	}
	if fullDir != "" {
		n.log.Error(fullDisk(fullDir) + ": make room")
	} else {
		n.log.Info("there is space on disk again")
	}
	n.mu.Lock()
	n.fullDir = fullDir
	n.gossip.Publish()
	n.mu.Unlock()
	n.wakeLoop()
}

// fullDisk says whose disk is full; empty: none is.
func fullDisk(dir string) string {
	if dir == "" {
		return ""
	}
	return "the disk of " + dir + " is full, or nearly"
}

// lowestSpace is the first folder of this node whose disk has less than need bytes; empty: all have them. Parts of
// mysqld may have disks of their own.
func (n *Node) lowestSpace(need uint64) string {
	my := n.mysqldConfig()
	if dir := n.cfg.RaftDir(); lacks(logSpace, dir, need+uint64(n.cfg.Raft.LogSegment)) {
		return dir
	}
	for _, dir := range []string{n.cfg.MySQLDir(), my.DataDir(), my.RelayDir(), my.BinlogDir()} {
		if lacks(freeSpace, dir, need) {
			return dir
		}
	}
	return ""
}

// lacks says whether a folder is there and its disk has less than need bytes: a logger has a log only.
func lacks(space func(string) (uint64, error), dir string, need uint64) bool {
	free, err := space(dir)
	return err == nil && free < need
}

// logSpace is the room for the raft log in dir: what is free, and what its next segment has already.
func logSpace(dir string) (uint64, error) {
	free, err := freeSpace(dir)
	return free + raftlog.SpareBytes(dir), err
}
