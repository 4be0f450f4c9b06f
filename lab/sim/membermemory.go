package sim

import (
	"time"

	"trireme/internal/core/raftlog"
	"trireme/internal/node/lifecycle"
	"trireme/internal/node/seeding"
)

// memoryDir is where a member has its node.json.
const memoryDir = "/memory"

// diskFS is the file system of a member; where rule is broken, it forgets names.
func (g *member) diskFS(rule string) raftlog.FS {
	if g.sql.broken(rule) {
		return forgetful{g.n.fs}
	}
	return g.n.fs
}

// forgetful says that names are durable, and they are not.
type forgetful struct{ raftlog.FS }

// SyncDir implements raftlog.FS.
func (forgetful) SyncDir(string) error { return nil }

// memoryOf a member is its node.json as its organs write it: that takes as long as the disk does, and the daemon or the
// power may go before it and after it.
type memoryOf struct{ g *member }

// Recall and Notes implement lifecycle.Memory and seeding.Memory.
func (m memoryOf) Recall() *lifecycle.State { return m.g.memory.Recall() }
func (m memoryOf) Notes() *seeding.Notes    { return m.g.memory.Notes() }

// Remember implements lifecycle.Memory.
func (m memoryOf) Remember(change func(*lifecycle.State)) error {
	return m.write(func() error { return m.g.memory.Remember(change) })
}

// Note implements seeding.Memory.
func (m memoryOf) Note(change func(*seeding.Notes, *lifecycle.State)) error {
	return m.write(func() error { return m.g.memory.Note(change) })
}

// write carries out a write. Nothing else happens meanwhile when a daemon starts, which is no task.
func (m memoryOf) write(f func() error) error {
	if m.g.running == nil {
		return f()
	}
	m.wait(m.g.n.disk.syncTime())
	for m.g.n.disk.hung > 0 {
		m.wait(20 * time.Millisecond)
	}
	err := f()
	m.wait(m.g.short())
	return err
}

// wait has no end but that of the daemon.
func (m memoryOf) wait(d time.Duration) { _ = exec(m).Sleep(m.g.root, d) }
