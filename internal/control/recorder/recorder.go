package recorder

import (
	"cmp"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/procfs"

	"trireme/internal/api"
	"trireme/internal/mysql/mysqld"
)

// Bounds of one frame.
const (
	maxSessions   = 200 // kinds of active sessions told apart
	maxStatements = 50
)

// Status lists the status variables of mysqld that are read. Those of gauges are no counters.
var Status = []string{
	"Queries", "Com_select", "Com_insert", "Com_update", "Com_delete", "Com_replace", "Com_commit", "Com_rollback",
	"Slow_queries", "Connections", "Aborted_clients", "Bytes_received", "Bytes_sent", "Created_tmp_disk_tables",
	"Sort_merge_passes", "Select_full_join", "Innodb_rows_read", "Innodb_rows_inserted", "Innodb_rows_updated",
	"Innodb_rows_deleted", "Innodb_row_lock_waits", "Innodb_row_lock_time", "Innodb_buffer_pool_read_requests",
	"Innodb_buffer_pool_reads", "Innodb_buffer_pool_wait_free", "Innodb_data_fsyncs", "Innodb_data_written",
	"Innodb_os_log_written", "Innodb_log_waits", connections,
}

const connections = "Threads_connected"

// Recorder makes frames of what is read. It is for one goroutine.
type Recorder struct {
	store  *Store
	load   api.LoadView // as last read
	counts counts

	proc           procfs.FS
	daemon, mysqld meter

	looks      int
	sessions   map[api.SessionLoad]int // Seen is 0
	statements []api.StatementLoad
	others     *api.StatementLoad
	files      []api.FileWait
	texts      map[string]string
}

// counts are what was last read of one life of mysqld.
type counts struct {
	life       string
	status     map[string]uint64
	statements map[[2]string]mysqld.StatementCount
	files      map[string]mysqld.FileCount
}

// New records into a store.
func New(s *Store) *Recorder {
	r := &Recorder{store: s, counts: counts{life: "-"}}
	r.proc, _ = procfs.NewDefaultFS() // without it nothing is read of processes
	r.begin()
	return r
}

// begin empties what the next frame is made of.
func (r *Recorder) begin() {
	r.looks, r.sessions = 0, map[api.SessionLoad]int{}
	r.statements, r.others, r.files, r.texts = nil, nil, nil, map[string]string{}
}

// of makes counts those of a life: a mysqld that has begun counts from 0, and so its whole count is new.
func (c *counts) of(life string) {
	if c.life != life {
		*c = counts{life: life, status: map[string]uint64{}, statements: map[[2]string]mysqld.StatementCount{},
			files: map[string]mysqld.FileCount{}}
	}
}

// since returns what a counter has counted since it was at before. A counter that is lower now has started again from
// zero.
func since[N uint64 | float64](now, before N) N {
	if now < before {
		return now
	}
	return now - before
}

// Look takes up one look at the active sessions.
func (r *Recorder) Look(active []mysqld.ActiveSession) {
	r.looks++
	for _, a := range active {
		s := api.SessionLoad{Wait: WaitOf(a), State: a.State, User: a.User, Digest: a.Digest}
		if s.Digest == "" {
			s.Text = strings.TrimPrefix(a.Kind, "statement/")
		}
		if _, known := r.sessions[s]; !known && len(r.sessions) >= maxSessions {
			s = api.SessionLoad{Wait: s.Wait}
		}
		r.sessions[s]++
	}
}

// Statements takes up the counters of one life of mysqld: of the kinds that ran since they were last read, or of more.
func (r *Recorder) Statements(life string, list []mysqld.StatementCount) {
	r.counts.of(life)
	var ran []api.StatementLoad
	for _, s := range list {
		key := [2]string{s.Schema, s.Digest}
		b := r.counts.statements[key]
		if s.Count < b.Count {
			b = mysqld.StatementCount{} // somebody has emptied the table
		}
		r.counts.statements[key] = s
		if s.Count > b.Count {
			ran = append(ran, api.StatementLoad{Schema: s.Schema, Digest: s.Digest, Count: s.Count - b.Count,
				TimeS: since(s.TimeS, b.TimeS), LockS: since(s.LockS, b.LockS), Errors: since(s.Errors, b.Errors),
				Sent: since(s.Sent, b.Sent), Examined: since(s.Examined, b.Examined), Affected: since(s.Affected, b.Affected),
				NoIndex: since(s.NoIndex, b.NoIndex)})
		}
	}
	slices.SortFunc(ran, byTime)
	for _, s := range ran[min(len(ran), maxStatements):] {
		if r.others == nil {
			r.others = new(api.StatementLoad)
		}
		r.others.Add(s)
	}
	r.statements = append(r.statements, ran[:min(len(ran), maxStatements)]...)
}

// Files takes up the counters of one life of mysqld.
func (r *Recorder) Files(life string, list []mysqld.FileCount) {
	r.counts.of(life)
	for _, f := range list {
		b := r.counts.files[f.Event]
		r.counts.files[f.Event] = f
		for i, kind := range []string{"read", "write", "other"} {
			if f.Counts[i] < b.Counts[i] {
				b.Counts[i], b.TimesS[i] = 0, 0
			}
			if n := f.Counts[i] - b.Counts[i]; n > 0 {
				r.files = append(r.files, api.FileWait{Event: f.Event + ", " + kind, Count: n,
					TimeS: since(f.TimesS[i], b.TimesS[i])})
			}
		}
	}
}

// Lacks lists digests, of what was taken up since the last frame, whose texts are not kept yet.
func (r *Recorder) Lacks() []string {
	wanted := map[string]bool{}
	for _, s := range r.statements {
		wanted[s.Digest] = true
	}
	for s := range r.sessions {
		wanted[s.Digest] = true
	}
	delete(wanted, "")
	return r.store.lacks(slices.Sorted(maps.Keys(wanted)))
}

// Texts takes up texts of statements.
func (r *Recorder) Texts(texts map[string]string) { maps.Copy(r.texts, texts) }

// Reading is what Write needs in addition to what was sampled before.
type Reading struct {
	At       time.Time     // now
	Took     time.Duration // since the last frame, on a clock that is not set
	Load     api.LoadView
	Self     api.MemberView
	Leads    bool              // the node takes writes
	Life     string            // of mysqld
	Counters map[string]uint64 // by Status; nil: mysqld did not answer
}

// Write ends an interval: what was taken up since the last one becomes a frame.
func (r *Recorder) Write(in Reading) error {
	f := &Frame{Interval: api.Interval{At: in.At.Add(-in.Took).UTC(), Seconds: in.Took.Seconds(),
		Transactions: since(in.Load.Transactions, r.load.Transactions), Bytes: since(in.Load.Bytes, r.load.Bytes),
		Commits: map[string]api.Histogram{}, LogWrites: in.Load.LogWrites.Since(r.load.LogWrites), Links: in.Self.Links,
		Looks: r.looks, Active: map[string]int{}},
		Statements: r.statements, Others: r.others, Files: r.files, Texts: r.texts}
	for stage, h := range in.Load.Commits {
		if d := h.Since(r.load.Commits[stage]); d.Count > 0 {
			f.Commits[stage] = d
		}
	}
	if in.Leads {
		f.LeaderS = f.Seconds
	}
	for _, d := range in.Load.Disks {
		if d.TotalBytes > 0 {
			f.DiskUsed = max(f.DiskUsed, 1-float64(d.FreeBytes)/float64(d.TotalBytes))
		}
	}
	f.LagS, f.LagBytes, _ = in.Self.Lag()
	if in.Counters != nil {
		r.counts.of(in.Life)
		f.MySQLSeconds, f.MySQL = f.Seconds, map[string]uint64{}
		for name, n := range in.Counters {
			if name == connections {
				f.Connections = n
				continue
			}
			if d := since(n, r.counts.status[name]); d > 0 {
				f.MySQL[name] = d
			}
			r.counts.status[name] = n
		}
	}
	f.Daemon = r.daemon.read(r.proc, os.Getpid())
	if my := in.Self.MySQL; my != nil && my.PID != 0 {
		f.Mysqld = r.mysqld.read(r.proc, my.PID)
	}
	for s, seen := range r.sessions {
		f.Active[s.Wait] += seen
		s.Seen = seen
		f.Sessions = append(f.Sessions, s)
	}
	slices.SortFunc(f.Sessions, func(a, b api.SessionLoad) int {
		return cmp.Or(cmp.Compare(b.Seen, a.Seen), cmp.Compare(a.Wait, b.Wait), cmp.Compare(a.Digest, b.Digest))
	})
	r.load = in.Load
	r.begin()
	return r.store.Append(f)
}

// What active sessions wait for.
const (
	WaitRunning  = "running: CPU, or a page" // performance_schema does not tell them apart as mysqld is shipped
	WaitRowLock  = "row lock"
	WaitMeta     = "metadata or table lock"
	WaitMajority = "commit: a majority"
	WaitEngine   = "commit: binary log and InnoDB"
	WaitClient   = "client"
	WaitReads    = "consistency of a read"
	WaitOther    = "other"
)

// WaitOf names what a session waits for, by its state as mysqld.cc (all_server_stages), the lock subsystem's and
// semisync_source.cc name them.
func WaitOf(a mysqld.ActiveSession) string {
	state := strings.ToLower(a.State)
	has := func(parts ...string) bool {
		return slices.ContainsFunc(parts, func(p string) bool { return strings.Contains(state, p) })
	}
	switch {
	case a.RowLock:
		return WaitRowLock
	case has("semi-sync ack"):
		return WaitMajority
	case has("waiting for handler commit", "waiting for preceding transaction", "binlog"):
		return WaitEngine
	case has("metadata lock", "table flush", "table lock", "system lock", "global read lock", "commit lock", "backup lock",
		"waiting for lock"):
		return WaitMeta
	case has("sending to client", "receiving from client", "reading from net", "writing to net"):
		return WaitClient
	case has("gtid"):
		return WaitReads
	case has("waiting", "user sleep", "user lock"):
		return WaitOther
	}
	return WaitRunning
}
