package room

import (
	"context"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sys/unix"

	"trireme/internal/api"
	"trireme/internal/base/poll"
	"trireme/internal/core/consensus"
	"trireme/internal/core/raftlog"
	"trireme/internal/mysql/mysqld"
)

// Free space below which a node should not lead, and above which it may again; of the raft log's disk, besides the next
// segment, whose space is taken at once.
const (
	spaceLow      = 32 << 20 // bytes
	spaceEnough   = 64 << 20
	SpaceInterval = 2 * time.Second // of WatchSpace
)

// Free is what this process may still write below dir, in bytes.
func Free(dir string) (uint64, error) {
	free, _, _, err := space(dir)
	return free, err
}

// space is Free, the size of the file system of dir, and which one it is.
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
func (r *Room) disks() (out []api.DiskView) {
	var first unix.Fsid
	for _, d := range []struct{ holds, path string }{{"log", r.cfg.RaftDir()}, {"data", r.cfg.MySQLDir()}} {
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

var (
	diskFreeDesc = prometheus.NewDesc("trireme_disk_free_bytes", "Bytes that the node may still write.",
		[]string{"holds"}, nil)
	diskTotalDesc = prometheus.NewDesc("trireme_disk_size_bytes", "Size of the file system.", []string{"holds"}, nil)
)

// Describe implements prometheus.Collector.
func (*Room) Describe(out chan<- *prometheus.Desc) { out <- diskFreeDesc; out <- diskTotalDesc }

// Collect implements prometheus.Collector.
func (r *Room) Collect(out chan<- prometheus.Metric) {
	for _, x := range r.State().Disks {
		out <- prometheus.MustNewConstMetric(diskFreeDesc, prometheus.GaugeValue, float64(x.FreeBytes), x.Holds)
		out <- prometheus.MustNewConstMetric(diskTotalDesc, prometheus.GaugeValue, float64(x.TotalBytes), x.Holds)
	}
}

// Await waits until the raft log's disk has room for one more segment. A daemon that ended because it had none must not
// start mysqld and end again, over and over.
func (r *Room) Await(ctx context.Context) error {
	dir, need := r.cfg.RaftDir(), uint64(r.cfg.Raft.LogSegment)
	for said := false; ; said = true {
		free, err := logSpace(dir)
		if err != nil || free >= need {
			return err
		}
		if !said {
			r.log.Error("the disk is full: this node waits for space", "dir", dir, "free_mib", free>>20, "needed_mib", need>>20)
		}
		if err := poll.Pause(ctx, SpaceInterval); err != nil {
			return fmt.Errorf("the disk of %s is full: %d MiB are free, %d are needed: %w", dir, free>>20, need>>20, err)
		}
	}
}

// WatchSpace notes whether a disk of this node is nearly full: then another node should lead, as long as there is time
// to move leadership by plan.
func (r *Room) WatchSpace(context.Context) {
	disks := r.disks()
	before := r.change(func(s *State) { s.Disks = disks }).FullDir
	need := uint64(spaceLow)
	if before != "" {
		need = spaceEnough
	}
	is := State{FullDir: r.lowest(need)}
	if is.FullDir == before {
		return
	}
	if is.FullDir != "" {
		r.log.Error(is.Full() + ": make room")
	} else {
		r.log.Info("there is space on disk again")
	}
	r.change(func(s *State) { s.FullDir = is.FullDir })
	r.gossip.Publish()
	r.host.WakeLoop()
}

// Full says whose disk is full; empty: none is.
func (s State) Full() string {
	if s.FullDir == "" {
		return ""
	}
	return "the disk of " + s.FullDir + " is full, or nearly"
}

// Disks says that a disk is full, and why this member refuses writes if it is the leader; empty: it does not.
func (r *Room) Disks(st *consensus.Status) (full, refused string) {
	s := r.State()
	if st.Role == consensus.Leader {
		refused = r.refused(st, s.Bound)
	}
	return s.Full(), refused
}

// HasSpace says whether no disk of this node is nearly full now.
func (r *Room) HasSpace() bool { return r.lowest(spaceLow) == "" }

// lowest is the first folder of this node whose disk has less than need bytes; empty: all have them. Parts of mysqld
// may have disks of their own.
func (r *Room) lowest(need uint64) string {
	if free, err := logSpace(r.cfg.RaftDir()); err == nil && free < need+uint64(r.cfg.Raft.LogSegment) {
		return r.cfg.RaftDir()
	}
	my := mysqld.Config{Dir: r.cfg.MySQLDir()}
	for _, dir := range []string{my.Dir, my.DataDir(), my.RelayDir(), my.BinlogDir()} {
		if free, err := Free(dir); err == nil && free < need { // a logger has no data
			return dir
		}
	}
	return ""
}

// logSpace is the room for the raft log in dir: what is free, and what its next segment has already.
func logSpace(dir string) (uint64, error) {
	free, err := Free(dir)
	return free + raftlog.SpareBytes(dir), err
}
