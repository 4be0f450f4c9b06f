package backup

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"trireme/internal/api"
	"trireme/internal/base/config"
	"trireme/internal/base/durable"
	"trireme/internal/base/pki"
	"trireme/internal/base/poll"
	"trireme/internal/core/raftlog"
	"trireme/internal/mysql/gtid"
	"trireme/internal/mysql/mysqld"
)

// Source is the node on whose host the backup is made, and its running daemon.
type Source struct {
	Node     config.Node
	Identity config.Identity
	Secrets  config.Secrets
	Daemon   *api.Client
}

// Options of Run.
type Options struct {
	Source
	To Place
	// Work is a directory in which the copy lies, uncompressed, while it is made. It is removed afterwards, with all
	// that is in it.
	Work string
	// Follow: archive until ctx ends. A copy is taken only if the archive does not continue one yet.
	Follow bool
	Logger *slog.Logger
	Say    func(format string, args ...any) // told what happens, a line each
	Tell   func(r api.BackupReport)         // has the cluster know what was made; nil: it is not told
	// Copying is told of the copy's progress: what is done and how much there is, in bytes, as far as is known.
	Copying func(stage string, done, total uint64)
}

// Result of Run.
type Result struct {
	Base    *Base // that was taken; nil: none
	Reached Reached
}

// Limits of a copy.
const (
	askLimit    = 5 * time.Second // one question to the daemon
	quorumLimit = 2 * time.Second // one that a majority answers
	watchPause  = time.Second
	seedStall   = 2 * time.Minute // without a byte
	startLimit  = 10 * time.Minute
	sqlLimit    = time.Minute
	lagLimit    = 5 * time.Minute // until the archive holds what the copy holds
)

// Run makes or continues a backup.
func Run(ctx context.Context, o Options) (Result, error) {
	id := clusterID{o.Identity.Cluster, o.Identity.ClusterID}
	if err := claim(o.To, id); err != nil {
		return Result{}, err
	}
	r := &run{Options: o, id: id}
	defer r.unlock()
	own, err := r.lockLog()
	if err != nil {
		return Result{}, err
	}
	need := true
	if own {
		if need, err = r.openArchive(ctx); err != nil {
			return Result{}, err
		}
		defer r.archive.close()
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if own {
			cancel(r.archive.follow(ctx, r.trouble)) // with nil it is ctx that has ended
		}
	}()
	var res Result
	if need {
		res.Base, err = r.takeBase(ctx)
	}
	if err == nil && res.Base != nil {
		r.tellCopy(res.Base)
	}
	if err == nil && o.Follow {
		<-ctx.Done()
		if cause := context.Cause(ctx); !errors.Is(cause, context.Canceled) {
			err = cause
		}
	}
	cancel(nil)
	<-ended
	if own && err == nil {
		err = r.lastStep()
	}
	if cause := context.Cause(ctx); err != nil && cause != nil && !errors.Is(cause, context.Canceled) {
		err = cause
	}
	if own {
		res.Reached = r.archive.reached
	} else if c, rerr := Read(o.To); rerr == nil {
		res.Reached = c.Reached
	}
	return res, err
}

// run is one Run.
type run struct {
	Options
	id      clusterID
	archive archiver
	locks   []io.Closer
}

func (r *run) unlock() {
	for _, l := range r.locks {
		_ = l.Close()
	}
}

// lockLog: own is false when another process archives, which is all that a copy needs.
func (r *run) lockLog() (own bool, err error) {
	l, err := r.To.Lock(lockLog)
	if errors.Is(err, ErrLocked) && !r.Follow {
		r.Say("another process archives the log; this one takes a copy only")
		return false, nil
	}
	if err != nil {
		return false, err
	}
	r.locks = append(r.locks, l)
	return true, nil
}

// openArchive finds where the archive ends. need says that a copy must be taken.
func (r *run) openArchive(ctx context.Context) (need bool, err error) {
	v, err := r.view(ctx)
	if err != nil {
		return false, err
	}
	// A new archive begins where the most lagging node is: whichever node is copied, the log after the copy is there.
	from := uint64(0)
	for _, m := range v.Members {
		if at := m.Raft.Applied; at != 0 && (m.Name == r.Node.Name || m.State == api.StateHealthy) &&
			(from == 0 || at < from) {
			from = at
		}
	}
	if from == 0 {
		return false, errors.New("no node has applied anything yet; see `trireme status`, and try again")
	}
	keys := func() (*raftlog.Keys, error) { // a segment may be newer than those that were read before
		return raftlog.LoadKeys(ctx, r.Node.Raft.LogKeyFile, r.Node.Raft.LogKeyCommand)
	}
	r.archive = archiver{store: r.To, id: r.id, dir: r.Node.RaftDir(), keys: keys, node: r, log: r.Logger}
	if err := r.archive.resume(ctx, from); err != nil {
		return false, err
	}
	if !r.Follow || r.archive.begins {
		return true, nil
	}
	c, err := Read(r.To)
	if err != nil {
		return false, err
	}
	for i := range c.Bases {
		if n := c.at(c.Bases[i].Last); n >= 0 && c.Gap(n, len(c.Segments)-1) == nil {
			r.Say("the archive continues after entry %d", r.archive.reached.Index)
			return false, nil
		}
	}
	return true, nil
}

// lastStep stores what is gathered, when nothing but the end of the run is to come.
func (r *run) lastStep() error {
	ctx, cancel := context.WithTimeout(context.Background(), sqlLimit)
	defer cancel()
	err := r.archive.step(ctx, true)
	if err != nil && r.Follow { // the daemon may have been stopped first
		r.Logger.Warn("the archive ends where it was stored last", "err", err)
		return nil
	}
	return err
}

func (r *run) trouble(at Reached, err error) {
	if err == nil {
		r.Say("archiving goes on")
		return
	}
	r.Say("the archive stands at entry %d: %v", at.Index, err)
}

// Applied implements Node.
func (r *run) Applied(ctx context.Context) (uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, askLimit)
	defer cancel()
	m, err := r.Daemon.Member(ctx)
	if err != nil {
		return 0, err
	}
	if m.Name != r.Node.Name {
		return 0, fmt.Errorf("the daemon at %s is of node %s, not of %s", r.Daemon.URL(), m.Name, r.Node.Name)
	}
	if m.Delay != nil {
		return 0,
			fmt.Errorf("%s is delayed on purpose, and an archive goes as far as its node has applied: archive at another node",
				m.Name)
	}
	return m.Raft.Applied, nil
}

// Committed implements Node.
func (r *run) Committed(ctx context.Context) (uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, quorumLimit)
	defer cancel()
	v, err := r.Daemon.ReadIndex(ctx, api.ReadIndexQuery{})
	return v.Index, err
}

func (r *run) view(ctx context.Context) (api.ClusterView, error) { return askCluster(ctx, r.Daemon) }

func askCluster(ctx context.Context, daemon *api.Client) (api.ClusterView, error) {
	ctx, cancel := context.WithTimeout(ctx, askLimit)
	defer cancel()
	return daemon.Cluster(ctx)
}

// donors are the nodes to copy from, the best one first: never the leader if there is another, this host's own before
// others.
func donors(v api.ClusterView, self, series string) []api.MemberView {
	fit := slices.DeleteFunc(slices.Clone(v.Members), func(m api.MemberView) bool {
		return m.State != api.StateHealthy || m.Delay != nil || m.MySQL == nil || m.MySQL.PID == 0 ||
			!strings.HasPrefix(m.MySQL.Version, series+".")
	})
	order := func(b bool) int {
		if b {
			return 1
		}
		return 0
	}
	lag := func(m api.MemberView) uint64 {
		if m.MySQL.LagBytes == nil {
			return 1 << 63
		}
		return *m.MySQL.LagBytes >> 20
	}
	slices.SortStableFunc(fit, func(a, b api.MemberView) int {
		return cmp.Or(order(a.Name == v.Leader)-order(b.Name == v.Leader), order(a.Name != self)-order(b.Name != self),
			cmp.Compare(lag(a), lag(b)),
			a.Raft.Weight-b.Raft.Weight, cmp.Compare(a.Raft.ID, b.Raft.ID))
	})
	return fit
}

// incarnation of a node's mysqld, from what its status shows.
func incarnation(m api.MemberView) string {
	if m.MySQL == nil {
		return ""
	}
	inc, _, _ := strings.Cut(m.MySQL.Epoch, "/")
	return inc
}

func member(v api.ClusterView, name string) (api.MemberView, bool) {
	i := slices.IndexFunc(v.Members, func(m api.MemberView) bool { return m.Name == name })
	if i < 0 {
		return api.MemberView{}, false
	}
	return v.Members[i], true
}

// takeBase copies a node's data.
func (r *run) takeBase(ctx context.Context) (*Base, error) {
	l, err := r.To.Lock(lockBase)
	if err != nil {
		return nil, err
	}
	defer func() { _ = l.Close() }() // a process that follows for years does not prevent further copies
	if err := dropUnfinished(r.To); err != nil {
		return nil, err
	}
	bin, err := mysqld.Find(ctx, r.Node.MySQL.Binary)
	if err != nil {
		return nil, fmt.Errorf("a copy needs the mysqld program on this host: %w", err)
	}
	v, err := r.view(ctx)
	if err != nil {
		return nil, err
	}
	fit := donors(v, r.Node.Name, bin.Version.Series())
	if len(fit) == 0 {
		return nil, fmt.Errorf("no node can be copied from: none is healthy with data and MySQL %s; see `trireme status`",
			bin.Version.Series())
	}
	donor := fit[0]
	b := &Base{Version: formatVersion, Name: baseName(time.Now()), Cluster: r.id.Name, ClusterID: r.id.ID,
		Donor: donor.Name, MySQL: bin.Version.String(),
		Index: donor.Raft.Applied, Last: donor.Raft.Applied, Began: time.Now().UTC(),
		Options: optionsIn(shapeOptions, r.Node.MySQL.Options),
		Account: mysqld.Account{User: "trireme_restore", Password: config.NewToken()}}
	if err := b.check(); err != nil {
		return nil, fmt.Errorf("a copy of this node could not be restored, because %w: see mysql.options", err)
	}
	cfg, err := r.workConfig(bin, b.Options)
	if err != nil {
		return nil, err
	}
	if err := mysqld.CheckPlace(cfg.Dir, cfg.OSUser); err != nil {
		return nil, err
	}
	alone, err := lockWork(cfg.Dir)
	if err != nil {
		return nil, err
	}
	defer func() { _ = errors.Join(os.RemoveAll(cfg.Dir), os.Remove(alone.Name()), alone.Close()) }()
	r.Say("copying %s (MySQL %s at %s:%d), entry %d on", donor.Name, b.MySQL, donor.MySQL.Host, donor.MySQL.Port, b.Index)
	advice := "the copy is made, uncompressed, in " + cfg.Dir +
		": make room, or name another directory with --work, and run the same command again"
	err = withSpace(ctx, filepath.Dir(cfg.Dir), advice, func(ctx context.Context) error {
		if err := r.clone(ctx, cfg, donor); err != nil {
			return err
		}
		return r.settle(ctx, cfg, b, donor)
	})
	if err != nil {
		return nil, err
	}
	b.Made = time.Now().UTC()
	if err := r.awaitLog(ctx, b); err != nil {
		return nil, err
	}
	err = b.store(ctx, r.To, cfg.DataDir(), func(done int64) { r.Copying("compressing", uint64(done), 0) })
	if err == nil {
		err = ctx.Err()
	}
	if err == nil {
		err = putSealed(r.To, b.manifest(), b)
	}
	if err != nil {
		return nil, errors.Join(err, dropUnfinished(r.To))
	}
	return b, nil
}

// placeOptions put parts of the data elsewhere: mysqld.Seed refuses them, and a copy would lack those parts.
var placeOptions = map[string]bool{"innodb_data_home_dir": true, "innodb_undo_directory": true,
	"innodb_log_group_home_dir": true,
	"innodb_directories":        true, "innodb_doublewrite_dir": true}

// optionsIn are those of a node's options that are in a set.
func optionsIn(set map[string]bool, options map[string]string) map[string]string {
	in := map[string]string{}
	for name, value := range options {
		key := strings.TrimPrefix(strings.ReplaceAll(strings.ToLower(strings.TrimSpace(name)), "-", "_"), "loose_")
		if set[key] {
			in[key] = value
		}
	}
	return in
}

// workConfig is a server of its own in the target, for the time of the copy.
func (r *run) workConfig(bin mysqld.Binary, options map[string]string) (mysqld.Config, error) {
	port, err := freePort()
	s := r.Secrets
	options = maps.Clone(options)
	maps.Copy(options, optionsIn(placeOptions, r.Node.MySQL.Options))
	return mysqld.Config{Binary: bin, Dir: r.Work, Port: port, ServerID: serverID, Admin: mysqld.Account(s.Admin),
		Repl: mysqld.Account(s.Repl), Clone: mysqld.Account(s.Clone), OSUser: r.Node.MySQL.OSUser, Extra: options,
		Logger: r.Logger}, err
}

// lockWork keeps two backups into different places apart that make their copies in the same directory of this host.
func lockWork(dir string) (*os.File, error) {
	if err := os.MkdirAll(filepath.Dir(dir), 0o711); err != nil {
		return nil, fmt.Errorf("backup: %w", err)
	}
	f, err := durable.Lock(dir + ".lock")
	if errors.Is(err, durable.ErrLocked) {
		err = fmt.Errorf("%w: another backup makes its copy in %s: name another directory with --work", ErrLocked, dir)
	} else if err != nil {
		err = fmt.Errorf("backup: %w", err)
	}
	return f, err
}

// clone has the data copied, and watches the donor: CLONE itself would wait for one that is gone for minutes.
func (r *run) clone(ctx context.Context, cfg mysqld.Config, donor api.MemberView) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	moved := make(chan struct{}, 1)
	go r.watch(ctx, cancel, donor, moved)
	var last mysqld.SeedProgress
	ca, file, err := r.donorCA(donor)
	if err != nil {
		return err
	}
	err = mysqld.Seed(ctx, cfg, mysqld.Seeding{CA: ca, CAFile: file, Host: donor.MySQL.Host, Port: donor.MySQL.Port,
		BytesPerSecond: int64(r.Node.MySQL.SeedRate),
		Progress: func(p mysqld.SeedProgress) {
			if p != last {
				last = p
				select {
				case moved <- struct{}{}:
				default:
				}
			}
			r.Copying(strings.ToLower(p.Stage), p.Done, p.Total)
		},
		Confirm: func(ctx context.Context) error {
			v, err := r.view(ctx)
			if err != nil {
				return fmt.Errorf("asking about the donor once more: %w", err)
			}
			return sameLife(v, donor)
		}})
	if cause := context.Cause(ctx); err != nil && cause != nil && !errors.Is(cause, context.Canceled) {
		err = fmt.Errorf("the copy from %s was given up: %w", donor.Name, cause)
	}
	return err
}

// donorCA is by what the donor's certificate is verified: the cluster's CA, or the operator's where the certificate is.
func (r *run) donorCA(donor api.MemberView) (pem []byte, file string, err error) {
	if p := donor.MySQL.Proof; p != nil && p.Cluster {
		pem, err = os.ReadFile(filepath.Join(r.Node.TLSDir(), pki.CAFile))
		return pem, "", err
	}
	own := mysqld.Config{Dir: r.Node.MySQLDir(), Extra: r.Node.MySQL.Options}
	if file = own.OwnCA(); file == "" {
		r.Say("the certificate of %s is not verified: its daemon is older, or the certificate is your own and mysql.options here has no ssl_ca", donor.Name)
	}
	return nil, file, nil
}

// sameLife says why the donor's mysqld is not the one that it was.
func sameLife(v api.ClusterView, donor api.MemberView) error {
	m, ok := member(v, donor.Name)
	switch {
	case !ok:
		return fmt.Errorf("%s is no member any more", donor.Name)
	case m.State == api.StateDown:
		return fmt.Errorf("%s is down: %s", donor.Name, m.Reason)
	case incarnation(m) != incarnation(donor):
		return fmt.Errorf("the mysqld of %s has ended", donor.Name)
	}
	return nil
}

func (r *run) watch(ctx context.Context, cancel context.CancelCauseFunc, donor api.MemberView, moved <-chan struct{}) {
	tick := time.NewTicker(watchPause)
	defer tick.Stop()
	at := time.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case <-moved:
			at = time.Now()
			continue
		case <-tick.C:
		}
		if time.Since(at) > seedStall {
			cancel(fmt.Errorf("nothing was copied for %v", seedStall))
			return
		}
		// A daemon here that does not answer says nothing of the donor.
		if v, err := r.view(ctx); err == nil {
			if err := sameLife(v, donor); err != nil {
				cancel(err)
				return
			}
		}
	}
}

// settle starts a server on the copy, once: InnoDB recovers, which shows that it can, and says what the copy holds.
func (r *run) settle(ctx context.Context, cfg mysqld.Config, b *Base, donor api.MemberView) error {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	srv, err := mysqld.New(cfg)
	if err != nil {
		return err
	}
	r.Copying("recovering", 0, 0)
	if err := srv.Start(ctx, randomUUID()); err != nil {
		return fmt.Errorf("the copy does not start: %w", err)
	}
	defer func() { _ = srv.Kill() }() // it has ended unless something failed
	executed, err := srv.Admin().GTIDExecuted(ctx)
	if err != nil {
		return err
	}
	if b.Executed, err = gtid.ParseSet(executed); err != nil {
		return fmt.Errorf("gtid_executed of the copy: %w", err)
	}
	had, err := gtid.ParseSet(donor.MySQL.GTIDExecuted)
	if err != nil {
		return fmt.Errorf("gtid_executed of %s: %w", donor.Name, err)
	}
	if err := checkHoles(donor.Name, had, b.Executed); err != nil {
		return err
	}
	err = withSQL(ctx, cfg, cfg.Admin, "SET sql_log_bin = 0", "SET GLOBAL super_read_only = OFF", "DROP USER IF EXISTS "+
		b.account(),
		"CREATE USER "+b.account()+" IDENTIFIED WITH caching_sha2_password BY '"+b.Account.Password+"'",
		"GRANT ALL ON *.* TO "+b.account()+" WITH GRANT OPTION")
	if err != nil {
		return fmt.Errorf("make the account that restores: %w", err)
	}
	return srv.StopPolitely(ctx)
}

// checkHoles refuses a copy that lacks anything of what its donor had before. CLONE brings no prepared XA transactions,
// and not the GTIDs of those that were prepared since the donor's start.
func checkHoles(donor string, had, has gtid.Set) error {
	lost := had.Subtract(has)
	if lost.Empty() {
		return nil
	}
	return fmt.Errorf(
		"%w: %s has executed %s, which its copy does not show: XA transactions since its start do that, and on a leader "+
			"statements that changed nothing; copying such a server is not supported yet", ErrHoles, donor, lost)
}

func (b *Base) account() string { return b.Account.User + "@localhost" }

// awaitLog waits until the archive holds everything that the copy holds, and finds the last of it. What a server holds
// is committed: so all of it lies at or below what a majority calls committed afterwards. What the donor says of itself
// may be old.
func (r *run) awaitLog(ctx context.Context, b *Base) error {
	ctx, cancel := context.WithTimeout(ctx, lagLimit)
	defer cancel()
	want := uint64(0)
	for {
		last, err := lastSegment(r.To)
		if err != nil {
			return err
		}
		var asked error
		if want == 0 {
			want, asked = r.Committed(ctx)
		}
		if want != 0 && last != nil && last.Last >= want {
			break
		}
		if poll.Pause(ctx, archivePause/2) != nil {
			if cause := context.Cause(ctx); !errors.Is(cause, context.DeadlineExceeded) {
				return cause
			}
			return errors.Join(fmt.Errorf("backup: the archive did not get to entry %d within %v", want, lagLimit), asked)
		}
	}
	c, err := Read(r.To)
	if err != nil {
		return err
	}
	b.Last, err = c.lastOf(b)
	return err
}

// lastOf finds the highest entry of which a copy holds anything. The log from the copy's index on must be there.
func (c *Contents) lastOf(b *Base) (uint64, error) {
	last := b.Index
	first := c.at(b.Index + 1)
	if first < 0 {
		if len(c.Segments) == 0 || c.Segments[len(c.Segments)-1].Last != b.Index {
			return 0, fmt.Errorf("%w: the log from entry %d on, after the copy", ErrMissing, b.Index+1)
		}
		return last, nil
	}
	for i := first; i < len(c.Segments); i++ {
		if i > first {
			if err := c.Gap(i-1, i); err != nil {
				return 0, err
			}
		}
		if c.Segments[i].GTIDs.Intersect(b.Executed).Empty() {
			continue
		}
		_, err := readSegment(c.store, c.Segments[i].Name(), func(e Entry) error {
			if e.Index <= b.Index || len(e.Data) == 0 || e.Type != 0 {
				return nil
			}
			m, _, err := raftlog.DecodeMeta(e.Data)
			if err != nil {
				return err
			}
			var in gtid.Set
			for _, g := range m.GTIDs {
				in.AddRange(g)
			}
			if !in.Intersect(b.Executed).Empty() {
				last = e.Index
			}
			return nil
		})
		if err != nil {
			return 0, err
		}
	}
	return last, nil
}

// randomUUID is a server_uuid that no server had.
func randomUUID() string {
	var u gtid.UUID
	_, _ = rand.Read(u[:]) // never fails: crypto/rand crashes the program instead
	u[6], u[8] = u[6]&0x0f|0x40, u[8]&0x3f|0x80
	return u.String()
}
