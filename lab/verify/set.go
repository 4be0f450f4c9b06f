package verify

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"strings"
	"sync"
	"time"
)

const workloadCausal = "causal"

// Workloads are the names that a Set knows, in the order in which it reports on them.
var Workloads = []string{"register", "append", "bank", "rows", "ddl", "acl", "xa", "large", "vanish", kindObjects,
	workloadCausal, workloadLevels}

// SetConfig says what a Set runs.
type SetConfig struct {
	Login // the read-write address
	// Nodes are the data nodes' own mysqlds as they are now, for those workloads that read everywhere. Asked once a
	// second, from any goroutine. Nil: only the read-write address is used.
	Nodes func() []NodeLogin
	// Split gives the address of a splitting port for each connection of causal and levels; nil: no such port, and
	// these workloads run only if they are named.
	Split func() string
	// Follow begins to read what is committed in a database; nil: what was not answered is not looked up in the log.
	Follow func(login Login, database string) Follower
	// Database is dropped and made by Prepare. Default trireme_verify.
	Database string
	// Workloads by name; empty: all.
	Workloads []string
	// Seed of everything that clients choose.
	Seed uint64
	// Rate of each client, in operations per second. Default 20.
	Rate float64
	// Clients of each workload that can have several. Default 4.
	Clients int
	// StaleMargin is how old a read may be without being a problem: the time that a leader which was cut off needs
	// until its fence is complete, see docs/GUARANTEES.md. Old reads are counted and reported whatever it is. Default
	// 200 ms; negative: none.
	StaleMargin time.Duration
	// Dir is where histories and what the nodes held are kept, for people; empty: nowhere.
	Dir string
}

// NodeLogin is a direct login to one data node's mysqld.
type NodeLogin struct {
	Name  string
	Login Login
}

const defaultStaleMargin = 200 * time.Millisecond

func (c SetConfig) withDefaults() SetConfig {
	c.Login = c.Login.WithDefaults()
	if c.Database == "" {
		c.Database = "trireme_verify"
	}
	if len(c.Workloads) == 0 {
		c.Workloads = slices.Clone(Workloads)
		if c.Split == nil {
			c.Workloads = slices.DeleteFunc(c.Workloads,
				func(name string) bool { return name == workloadCausal || name == workloadLevels })
		}
	}
	if c.Rate == 0 {
		c.Rate = 20
	}
	if c.Clients == 0 {
		c.Clients = 4
	}
	switch {
	case c.StaleMargin == 0:
		c.StaleMargin = defaultStaleMargin
	case c.StaleMargin < 0:
		c.StaleMargin = 0
	}
	return c
}

// part is one workload of a Set.
type part interface {
	name() string
	// schema makes its tables, in the set's database.
	schema() []string
	// clients run until their context ends. What they return is a fault of the workload, not of servers.
	clients() []client
	counts() Counts
	// collect reads what the nodes hold, all of them at rest.
	collect(ctx context.Context, nodes []Endpoint) error
	// judge is a pure function of what is in memory.
	judge() Part
	// save keeps the same in files of a directory, for people.
	save(dir string) error
}

// finisher is a part whose clients leave something open on the leader: finish brings it to an end. The clients have
// ended.
type finisher interface {
	finish(ctx context.Context) error
}

type client func(context.Context) error

// Part is the verdict over one workload of a Set.
type Part struct {
	Workload string `json:"workload"`
	Counts   Counts `json:"counts"`
	// Reads are the looks at each node while clients worked, of workloads that look at nodes; an empty name is the
	// read-write address.
	Reads map[string]int64 `json:"reads,omitempty"`
	// Figures of this workload's checker, by name.
	Figures map[string]int64 `json:"figures,omitempty"`
	// Stale are the reads that were older than they should be, whether or not that was within the margin.
	Stale []StaleRead `json:"stale,omitempty"` // the first of them
	// OldestStale is the greatest age of all of them.
	OldestStale time.Duration `json:"oldest_stale_ns,omitempty"`
	Problems    []Problem     `json:"problems"`
	Undecided   []string      `json:"undecided,omitempty"`
}

// StaleRead is a read that returned what had been overwritten before the read began.
type StaleRead struct {
	Key int64         `json:"key"`
	At  time.Duration `json:"at"`  // its beginning, since the start of the workload
	Age time.Duration `json:"age"` // at least so long before its beginning the value had been overwritten
}

// GarbledRow is a row that no client can have written.
type GarbledRow struct {
	Workload string `json:"workload"`
	Detail   string `json:"detail"`
}

// Set is several workloads at once on one cluster: Prepare, Start, Stop, Check, in this order.
type Set struct {
	cfg   SetConfig
	parts []part
	meter *Meter
	begin time.Time // of all histories
	nodes []string  // whose data is in memory, after Check has read it
	log   Follower
	// committed is what the log says, after Check has read it; nil: the log was not followed.
	committed *Committed

	cancel context.CancelFunc
	wg     sync.WaitGroup
	errMu  sync.Mutex
	errs   []error
	blind  blind
	// garbled are rows that no client can have written, as clients met them, or Check did.
	garbled []GarbledRow
	// everyNode: readers were given a list of nodes, so each of them must have been read.
	everyNode bool
	// alone: it is a Workload. Nodes that do not become equal are an error of Check, and what was not tried leaves nothing
	// undecided.
	alone bool
}

// NewSet makes a set of workloads; nothing is sent yet.
func NewSet(cfg SetConfig) (*Set, error) {
	cfg = cfg.withDefaults()
	if cfg.Addr == nil {
		return nil, errors.New("workloads: no address to connect to")
	}
	s := &Set{cfg: cfg, meter: NewMeter(time.Now), begin: time.Now(), everyNode: cfg.Nodes != nil}
	for _, name := range Workloads {
		if !slices.Contains(cfg.Workloads, name) {
			continue
		}
		p, err := s.newPart(name)
		if err != nil {
			return nil, err
		}
		s.parts = append(s.parts, p)
	}
	for _, name := range cfg.Workloads {
		if !slices.Contains(Workloads, name) {
			return nil, fmt.Errorf("no workload %q; there are %s", name, strings.Join(Workloads, ", "))
		}
	}
	return s, nil
}

// newPart makes a workload of a set by name.
func (s *Set) newPart(name string) (part, error) {
	switch name {
	case "register":
		return &registerPart{set: s}, nil
	case "append":
		return newAppendPart(s), nil
	case "bank":
		return &bankPart{set: s}, nil
	case kindDDL, kindACL, kindXA, kindObjects:
		return newMixedPart(s, name), nil
	case "large":
		return &largePart{set: s}, nil
	case "vanish":
		return &vanishPart{set: s, run: s.begin.UnixNano()}, nil
	case workloadCausal:
		return &causalPart{set: s}, nil
	case workloadLevels:
		return &levelsPart{set: s}, nil
	case "rows":
		return newRowsPart(s, Config{Login: s.cfg.Login, Database: s.cfg.Database, Writers: s.cfg.Clients, Rate: s.cfg.Rate})
	}
	return nil, fmt.Errorf("no workload %q", name)
}

// Meter of all acknowledged writes of the set.
func (s *Set) Meter() *Meter { return s.meter }

// Database that the set writes to.
func (s *Set) Database() string { return s.cfg.Database }

// Counts of operations so far, by workload.
func (s *Set) Counts() map[string]Counts {
	out := map[string]Counts{}
	for _, p := range s.parts {
		out[p.name()] = p.counts()
	}
	return out
}

// Prepare makes the database and its tables. It tries until ctx ends.
func (s *Set) Prepare(ctx context.Context) error {
	if s.cfg.Follow != nil {
		if s.log == nil {
			s.log = s.cfg.Follow(s.cfg.Login, s.cfg.Database)
		}
		if err := s.log.Started(ctx); err != nil {
			return err
		}
	}
	var stmts []string
	for _, p := range s.parts {
		stmts = append(stmts, p.schema()...)
	}
	return prepare(ctx, s.cfg.Login, s.cfg.Database, stmts, s.leftovers)
}

// leftovers of earlier sets on the same database, outside of it: accounts, and prepared transactions, which would hold
// its tables.
func (s *Set) leftovers(ctx context.Context, db *sql.DB) ([]string, error) {
	users, err := queryStrings(ctx, db, "SELECT user FROM mysql.user WHERE user REGEXP '^"+s.mark()+"_'")
	if err != nil {
		return nil, err
	}
	xids, err := preparedXIDs(ctx, db)
	if err != nil {
		return nil, err
	}
	var stmts []string
	for _, u := range users {
		stmts = append(stmts, "DROP USER IF EXISTS "+u)
	}
	for _, x := range xids {
		if strings.HasPrefix(x, s.mark()+"_") {
			stmts = append(stmts, "XA ROLLBACK '"+x+"'")
		}
	}
	return stmts, nil
}

// mark begins the names of all that sets on this database make outside of it.
func (s *Set) mark() string {
	h := fnv.New32a()
	h.Write([]byte(s.cfg.Database))
	return fmt.Sprintf("s%08x", h.Sum32())
}

// Start lets all clients work until Stop or the end of ctx.
func (s *Set) Start(ctx context.Context) {
	ctx, s.cancel = context.WithCancel(ctx)
	for _, p := range s.parts {
		for _, c := range p.clients() {
			s.wg.Add(1)
			go func() {
				defer s.wg.Done()
				if err := c(ctx); err != nil {
					s.ended(p.name(), err)
				}
			}()
		}
	}
}

// ended notes why a client ended before its time. A value that a server showed and that no client wrote is the server's
// fault, and goes into the report.
func (s *Set) ended(workload string, err error) {
	s.errMu.Lock()
	defer s.errMu.Unlock()
	if errors.Is(err, errGarbled) {
		s.garbled = append(s.garbled, GarbledRow{workload, err.Error()})
		return
	}
	s.errs = append(s.errs, fmt.Errorf("workload %s: %w", workload, err))
}

// Stop ends the clients after their present statement, at most DialTimeout + StatementTimeout later, and writes the
// histories to the directory. It returns what went wrong in the workloads themselves (not the errors of servers: those
// are outcomes; nor rows that no client can have written: those are problems, which Check reports).
func (s *Set) Stop() error {
	if s.cancel == nil {
		return nil
	}
	s.cancel()
	s.wg.Wait()
	s.errMu.Lock()
	defer s.errMu.Unlock()
	return errors.Join(append(s.errs, s.save())...)
}

// Finish ends what stopped clients have left open on the leader, as Check does: while an XA transaction is prepared, a
// node whose log begins with a later entry cannot be copied to, and is not healthy.
func (s *Set) Finish(ctx context.Context) error {
	for _, p := range s.parts {
		if f, open := p.(finisher); open {
			if err := f.finish(ctx); err != nil {
				return fmt.Errorf("workload %s: %w", p.name(), err)
			}
		}
	}
	return nil
}

// judgeLimit bounds reading nodes that did not become equal in time.
const judgeLimit = 2 * time.Minute

// Check waits until all nodes are equal and judges every workload's history and what the nodes hold. A workload without
// an acknowledged write, and a node that a workload's readers never could read, leave the report undecided. The set
// must have been stopped. Nodes are all live data nodes, each by a direct connection to its mysqld. A report with
// problems is no error; an error means that the check could not be made. Nodes that have not become equal when ctx ends
// are a problem, and are judged all the same.
func (s *Set) Check(ctx context.Context, nodes []Endpoint) (Report, error) {
	r := Report{}
	if len(nodes) == 0 {
		return r, errors.New("check: no nodes to compare")
	}
	for _, n := range nodes {
		r.Nodes = append(r.Nodes, n.Name)
	}
	err := s.Finish(ctx)
	if err != nil {
		return r, err
	}
	if r.GTIDExecuted, r.Local, err = WaitEqual(ctx, nodes); err != nil {
		if errors.Is(ctx.Err(), context.Canceled) || s.alone {
			return r, err
		}
		r.GTIDExecuted = "different"
		r.Problems = append(r.Problems, Problem{Kind: Diverged, Detail: err.Error()})
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), judgeLimit)
		defer cancel()
	}
	for _, p := range s.parts {
		err := p.collect(ctx, nodes)
		if errors.Is(err, errGarbled) {
			s.ended(p.name(), err)
			continue
		}
		if err != nil {
			return r, fmt.Errorf("workload %s: reading what the nodes hold: %w", p.name(), err)
		}
	}
	if s.log != nil {
		s.committed = s.log.Ends(ctx, r.GTIDExecuted, s.now)
		r.Unread = s.committed.Why
	}
	s.nodes = r.Nodes
	if err := s.save(); err != nil {
		return r, err
	}
	s.judge(&r)
	compared, n, err := Compare(ctx, nodes)
	r.Tables = n
	r.Problems = append(r.Problems, compared...)
	return r, err
}

// judge adds every part's verdict to a report.
func (s *Set) judge(r *Report) {
	for _, p := range s.parts {
		v := p.judge()
		v.Workload, v.Counts = p.name(), p.counts()
		if !s.alone {
			s.judgeLife(p, &v)
		}
		for _, g := range s.garbled {
			if g.Workload == v.Workload {
				v.Problems = append(v.Problems, Problem{Kind: Garbled, Detail: g.Detail})
			}
		}
		r.Parts = append(r.Parts, v)
		r.Counts = r.Counts.plus(v.Counts)
		for _, x := range v.Problems {
			x.Detail = v.Workload + ": " + x.Detail
			r.Problems = append(r.Problems, x)
		}
		for _, u := range v.Undecided {
			r.Undecided = append(r.Undecided, v.Workload+": "+u)
		}
	}
}

// judgeLife finds workloads that did nothing and nodes that were not read: what was not tried is not proven.
func (s *Set) judgeLife(p part, v *Part) {
	nodes := s.nodes
	if !s.everyNode {
		nodes = []string{""}
	}
	var lacks []string
	lacks, v.Reads = s.lacks(p, nodes)
	v.Undecided = append(v.Undecided, lacks...)
}

// lacks says what a workload has not done yet, and how often its readers looked at each node.
func (s *Set) lacks(p part, nodes []string) (out []string, reads map[string]int64) {
	c := p.counts()
	writes := c.Acked
	if w, ok := p.(interface{ ackedWrites() int64 }); ok {
		writes = w.ackedWrites()
	}
	if writes == 0 {
		out = append(out, fmt.Sprintf("no write was acknowledged: %d attempts, %d refused", c.Attempts, c.Failed))
	}
	if l, ok := p.(interface{ lack() string }); ok {
		if why := l.lack(); why != "" {
			out = append(out, why)
		}
	}
	l, ok := p.(interface{ looks() map[string]int64 })
	if !ok {
		return out, nil
	}
	reads = l.looks()
	for _, n := range nodes {
		if reads[n] > 0 {
			continue
		}
		why := ""
		if err := s.blind.last(p.name(), n); err != nil {
			why = ": " + err.Error()
		}
		out = append(out, fmt.Sprintf("%s was never read%s", orName(n), why))
	}
	return out, reads
}

// Unproven says what Check would leave undecided if the set were stopped now, because it was not tried: a workload
// without an acknowledged write, a node that readers have not reached. Empty: nothing. It may be called while clients
// work.
func (s *Set) Unproven() []string {
	nodes := []string{""}
	if s.everyNode {
		nodes = nil
		for _, n := range s.cfg.Nodes() {
			nodes = append(nodes, n.Name)
		}
	}
	var out []string
	for _, p := range s.parts {
		lacks, _ := s.lacks(p, nodes)
		for _, l := range lacks {
			out = append(out, p.name()+": "+l)
		}
	}
	return out
}

// byNode counts looks.
func byNode[T any](looks []T, node func(T) string) map[string]int64 {
	out := map[string]int64{}
	for _, l := range looks {
		out[node(l)]++
	}
	return out
}

// Close ends the reading of the log.
func (s *Set) Close() {
	if s.log != nil {
		s.log.Stop()
	}
}

func (c Counts) plus(d Counts) Counts {
	return Counts{c.Attempts + d.Attempts, c.Acked + d.Acked, c.Unknown + d.Unknown, c.Failed + d.Failed}
}
