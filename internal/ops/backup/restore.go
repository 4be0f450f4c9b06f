package backup

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"trireme/internal/base/config"
	"trireme/internal/base/durable"
	"trireme/internal/core/dump"
	"trireme/internal/mysql/gtid"
	"trireme/internal/mysql/mysqld"
)

// RestoreOptions of Restore.
type RestoreOptions struct {
	From   Store
	To     Target
	Dir    string // absolute; must not exist or be empty
	Mysqld string // program; empty: found as a node finds it
	OSUser string // to run mysqld as when we are root; empty: ourselves
	Port   int    // of the restored server, in its option file
	Logger *slog.Logger
	Say    func(format string, args ...any)
	// Done is told how far it is: of what, how much, and how much there is; 0: not known.
	Done func(stage string, done, total uint64)
	// look, in a drill, looks at the server when all is applied, before it is handed over.
	look func(context.Context, mysqld.Config) error
}

// Restored is what there is in the end.
type Restored struct {
	Dir          string    `json:"dir"`
	DataDir      string    `json:"data_dir"`
	OptionFile   string    `json:"option_file"` // a stock mysqld starts with it
	Socket       string    `json:"socket"`      // of that mysqld
	PasswordFile string    `json:"password_file"`
	Base         string    `json:"base"`
	Index        uint64    `json:"index"`
	GTIDs        gtid.Set  `json:"gtid_executed"`
	Newest       time.Time `json:"newest,omitzero"` // commit time of the newest transaction
	Bytes        int64     `json:"bytes"`           // of the copy
	MySQL        string    `json:"mysql"`           // version that wrote the data
	Command      []string  `json:"command"`         // starts it
	// RolledBack are XA transactions that were prepared at that moment, and are not there now.
	RolledBack []string `json:"rolled_back_xa,omitempty"`
	// Proven: the backup was encrypted, so only somebody with its key can have written to it.
	Proven bool `json:"proven,omitempty"`
	// Administrators are the accounts, besides root@localhost, that may change accounts, files or settings.
	Administrators []string `json:"administrators,omitempty"`
}

// Names in a directory that data is restored to.
const (
	unfinishedName = "restore-unfinished"
	passwordName   = "root-password"
	partName       = "data.part"
)

// Limits of a restoration.
const (
	applyPoll    = 500 * time.Millisecond
	applierRetry = 20 * time.Second // an applier's error may be a lock that is soon gone
)

// Restore makes a server's directory of a backup. When it fails, no server runs and the directory is as it was: empty,
// or not there. Errors, besides those of Read: ErrTarget, ErrNotEmpty, ErrNoSpace, ErrMissing, mysqld's.
func Restore(ctx context.Context, o RestoreOptions) (*Restored, error) {
	if _, err := whose(o.From); err != nil {
		return nil, err
	}
	still, err := holdStill(o.From, false)
	if err != nil {
		return nil, err
	}
	defer func() { _ = still.Close() }()
	c, err := Read(o.From)
	if err != nil {
		return nil, err
	}
	r := &restoration{RestoreOptions: o, c: c}
	if err := r.plan(ctx); err != nil {
		return nil, err
	}
	made, err := r.occupy()
	if err != nil {
		return nil, err
	}
	var res *Restored
	err = withSpace(ctx, r.Dir, "nothing was restored: make room in "+r.Dir+" and run the same command again",
		func(ctx context.Context) (err error) {
			res, err = r.carryOut(ctx)
			return err
		})
	if err != nil {
		return nil, errors.Join(err, r.vacate(made))
	}
	return res, nil
}

type restoration struct {
	RestoreOptions
	c           *Contents
	point       Point
	base        *Base
	first, last int // segments
	bin         mysqld.Binary
	cfg         mysqld.Config
}

// plan finds out whether it can be done, before anything is written.
func (r *restoration) plan(ctx context.Context) (err error) {
	if r.point, err = r.c.Find(r.To); err != nil {
		return r.c.named(err)
	}
	if r.base, r.first, r.last, err = r.c.base(&r.point); err != nil {
		return r.c.named(err)
	}
	if r.bin, err = mysqld.Find(ctx, r.Mysqld); err != nil {
		return err
	}
	made, err := mysqld.ParseVersion(r.base.MySQL)
	if err != nil {
		return fmt.Errorf("%w: %s: %w", ErrCorrupt, r.base.manifest(), err)
	}
	if v := r.bin.Version; v.Series() != made.Series() || v.Patch < made.Patch {
		return fmt.Errorf("the copy was made by MySQL %s, %s is %s: name one of that series with --mysqld, not an older one",
			made, r.bin.Path, v)
	}
	if err := checkEmpty(r.Dir); err != nil {
		return err
	}
	if err := mysqld.CheckPlace(r.Dir, r.OSUser); err != nil {
		return err
	}
	if err := r.checkSpace(); err != nil {
		return err
	}
	port, err := freePort()
	// Not for logins; a server's settings must name them.
	none := func(user string) mysqld.Account { return mysqld.Account{User: user, Password: config.NewToken()} }
	r.cfg = mysqld.Config{Binary: r.bin, Dir: r.Dir, Port: port, ServerID: serverID, Admin: r.base.Account,
		Repl: none("trireme_repl"), Clone: none("trireme_clone"),
		OSUser: r.OSUser, Extra: r.base.Options, Logger: r.Logger}
	if err := errors.Join(err, r.cfg.Validate()); err != nil {
		return err
	}
	return r.checkLog(ctx)
}

// checkLog reads all of the log that is needed: damage is better found before the copy is unpacked.
func (r *restoration) checkLog(ctx context.Context) error {
	for i := r.first; i <= r.last; i++ {
		if err := ctx.Err(); err != nil {
			return err
		}
		r.Done("checking the log", uint64(i-r.first), uint64(r.last-r.first+1))
		if _, err := readSegment(r.From, r.c.Segments[i].Name(), func(Entry) error { return nil }); err != nil {
			return err
		}
	}
	return nil
}

// checkEmpty refuses a directory with anything in it.
func checkEmpty(dir string) error {
	entries, err := os.ReadDir(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case errors.Is(err, syscall.ENOTDIR):
		return fmt.Errorf("%w: %s is a file", ErrNotEmpty, dir)
	case err != nil:
		return fmt.Errorf("restore: %w", err)
	}
	for _, e := range entries {
		if e.Name() == unfinishedName {
			return fmt.Errorf("%w: %s holds what a killed restoration left, or one is under way; if none is, remove the directory and restore again",
				ErrNotEmpty, dir)
		}
	}
	if len(entries) > 0 {
		return fmt.Errorf("%w: %s holds %s; name one that is empty or not there", ErrNotEmpty, dir, entries[0].Name())
	}
	return nil
}

// spare is what a server needs besides its data while it applies the log.
const spare = 512 << 20

func (r *restoration) checkSpace() error {
	dir := r.Dir
	for {
		if _, err := os.Stat(dir); err == nil {
			break
		}
		dir = filepath.Dir(dir)
	}
	left, err := durable.Free(dir)
	if err != nil {
		return err
	}
	if need := uint64(r.base.Bytes) + spare; left < need {
		return fmt.Errorf("%w: %s has %d MiB free, the copy needs %d MiB, and more for the log", ErrNoSpace, dir, left>>20,
			need>>20)
	}
	return nil
}

// occupy makes the directory and marks it. made says that it was not there.
func (r *restoration) occupy() (made bool, err error) {
	if _, err := os.Stat(r.Dir); errors.Is(err, fs.ErrNotExist) {
		made = true
	}
	if err := os.MkdirAll(r.Dir, 0o755); err != nil {
		return made, fmt.Errorf("restore: %w", err)
	}
	if err := mysqld.CheckPlace(r.Dir, r.OSUser); err != nil { // as in plan, now that it is there
		return made, err
	}
	f, err := os.OpenFile(filepath.Join(r.Dir, unfinishedName), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return made, fmt.Errorf("%w: %w", ErrNotEmpty, err) // another one was faster
	}
	if err := errors.Join(f.Close(), durable.SyncDir(r.Dir)); err != nil {
		return made, err
	}
	// It was empty when this began, minutes ago. What somebody has put there since would go with a restoration that fails.
	all, err := os.ReadDir(r.Dir)
	if err == nil && len(all) > 1 {
		err = fmt.Errorf("%w: somebody has written to %s meanwhile", ErrNotEmpty, r.Dir)
	}
	if err != nil {
		return made, errors.Join(err, os.Remove(f.Name()))
	}
	return made, nil
}

// vacate removes all that was made. The mark goes last: a directory without it holds nothing of ours.
func (r *restoration) vacate(made bool) error {
	entries, err := os.ReadDir(r.Dir)
	for _, e := range entries {
		if e.Name() != unfinishedName {
			err = errors.Join(err, os.RemoveAll(filepath.Join(r.Dir, e.Name())))
		}
	}
	if err == nil {
		err = os.Remove(filepath.Join(r.Dir, unfinishedName))
	}
	if err == nil && made {
		err = os.Remove(r.Dir)
	}
	if err != nil {
		return fmt.Errorf("restore: clear up %s: %w; remove it yourself", r.Dir, err)
	}
	return nil
}

func (r *restoration) carryOut(ctx context.Context) (*Restored, error) {
	if err := r.unpack(ctx); err != nil {
		return nil, err
	}
	srv, err := mysqld.New(r.cfg)
	if err != nil {
		return nil, err
	}
	r.Say("starting mysqld %s on the copy", r.bin.Version)
	if err := srv.Start(ctx, randomUUID()); err != nil {
		return nil, err
	}
	defer func() { _ = srv.Kill() }() // it has ended unless something failed
	executed, err := srv.Admin().GTIDExecuted(ctx)
	if err != nil {
		return nil, err
	}
	has, err := gtid.ParseSet(executed)
	if err != nil {
		return nil, err
	}
	if lost := r.base.Executed.Subtract(has); !lost.Empty() {
		return nil, fmt.Errorf("%w: the copy does not hold %s, which its manifest says", ErrCorrupt, lost)
	}
	if err := r.replay(ctx, srv.Admin(), has); err != nil {
		return nil, err
	}
	if r.look != nil {
		if err := r.look(ctx, r.cfg); err != nil {
			return nil, err
		}
	}
	return r.finish(ctx, srv)
}

// unpack makes the data directory.
func (r *restoration) unpack(ctx context.Context) error {
	uid, gid, err := ownerFor(r.OSUser)
	if err != nil {
		return err
	}
	b, part := r.base, filepath.Join(r.Dir, partName)
	r.Say("unpacking the copy %s of %s (%d MiB)", b.Name, b.Donor, b.Bytes>>20)
	folders := append([]string{""}, b.Folders...)
	for _, f := range folders {
		if err := os.MkdirAll(filepath.Join(part, f), 0o750); err != nil {
			return err
		}
	}
	done := uint64(0)
	for i := range b.Files {
		if err := r.unpackFile(ctx, &b.Files[i], part, uid, gid); err != nil {
			return err
		}
		done += uint64(b.Files[i].Size)
		r.Done("unpacking", done, uint64(b.Bytes))
	}
	for _, f := range folders {
		if err := durable.SyncDir(filepath.Join(part, f)); err != nil {
			return err
		}
	}
	slices.Reverse(folders) // given away once they are full, the topmost last: until then they are the daemon's
	for _, f := range folders {
		if err := mysqld.MkdirOwned(r.Dir, filepath.Join(partName, f), 0, uid, gid); err != nil {
			return err
		}
	}
	return mysqld.TakeOver(r.cfg, func(to string) error { return os.Rename(part, to) })
}

func (r *restoration) unpackFile(ctx context.Context, f *File, dir string, uid, gid int) error {
	out, err := mysqld.CreateOwned(dir, f.Path, 0o640, uid, gid)
	if err != nil {
		return err
	}
	w := bufio.NewWriterSize(out, 1<<20)
	err = r.base.unpack(ctx, r.From, f, w)
	if err == nil {
		err = w.Flush()
	}
	if err == nil {
		err = out.Sync()
	}
	return errors.Join(err, out.Close())
}

// ownerFor is the future owner of the data; -1: the user of this process.
func ownerFor(name string) (uid, gid int, err error) {
	if name == "" || os.Getuid() != 0 {
		return -1, -1, nil
	}
	u, err := user.Lookup(name)
	if err != nil {
		return 0, 0, fmt.Errorf("restore: %w", err)
	}
	uid, err = strconv.Atoi(u.Uid)
	if err == nil {
		gid, err = strconv.Atoi(u.Gid)
	}
	return uid, gid, err
}

// replay has the server apply the log up to the point, as a follower does.
func (r *restoration) replay(ctx context.Context, admin *mysqld.Admin, has gtid.Set) error {
	missing := r.point.GTIDs.Subtract(has)
	if missing.Empty() {
		return nil
	}
	total := missing.Count()
	r.Say("applying %d transactions, up to entry %d", total, r.point.Index)
	account := mysqld.Account{User: "restore", Password: config.NewToken()}
	stopped := make(chan error, 1)
	log := newFeedLog(r.c, r.first, r.last, r.point)
	tolerance := dump.NewTolerance(log.tolerant)
	uid, err := r.cfg.UID()
	if err != nil {
		return err
	}
	feed, err := dump.NewFeed(dump.FeedConfig{Listen: "127.0.0.1:0", User: account.User, Password: account.Password,
		UID: uid, ServerID: serverID + 1,
		ServerUUID: gtid.IncarnationUUID(r.c.ClusterID, 0, 0), ServerVersion: r.bin.Version.String() + "-trireme",
		Appliers: r.cfg.Appliers(), Void: log.void, Tolerance: tolerance, Logger: r.Logger,
		Report: func(err error) {
			select {
			case stopped <- err:
			default:
			}
		}}, log)
	if err != nil {
		return err
	}
	defer func() { _ = feed.Close() }()
	_, port, err := net.SplitHostPort(feed.Addr())
	if err != nil {
		return err
	}
	at, err := strconv.Atoi(port)
	if err != nil {
		return err
	}
	// What a follower commits is not to wait for anybody.
	if err := admin.SetSemisync(ctx, false); err != nil {
		return err
	}
	if err := admin.ConfigureChannel(ctx, mysqld.Channel{Host: "127.0.0.1", Port: at, Account: account}); err != nil {
		return err
	}
	if err := admin.StartReplica(ctx); err != nil {
		return err
	}
	if err := r.awaitApplied(ctx, admin, tolerance, missing, total, stopped); err != nil {
		return err
	}
	return admin.StopReplica(ctx)
}

// awaitApplied waits until all of missing is executed, or replication cannot go on.
func (r *restoration) awaitApplied(ctx context.Context, admin *mysqld.Admin, tolerance *dump.Tolerance,
	missing gtid.Set,
	total uint64, stopped <-chan error) error {
	var since time.Time // of the applier's error
	for {
		select {
		case err := <-stopped:
			return fmt.Errorf("the log cannot be applied: %w", err)
		default:
		}
		reached, err := admin.WaitExecuted(ctx, missing.String(), applyPoll)
		if err != nil || reached {
			return err
		}
		if err := tolerance.Tend(ctx, admin.GTIDExecuted, admin.SetTolerant); err != nil {
			return err
		}
		st, err := admin.ReplicaStatus(ctx)
		if err != nil {
			return err
		}
		if why := stands(&st); why == nil {
			since = time.Time{}
		} else if since.IsZero() {
			since = time.Now()
		} else if time.Since(since) > applierRetry {
			return why
		}
		executed, err := admin.GTIDExecuted(ctx)
		if err != nil {
			return err
		}
		now, err := gtid.ParseSet(executed)
		if err != nil {
			return err
		}
		r.Done("applying", missing.Intersect(now).Count(), total)
	}
}

// stands says why replication does not progress; nil: it does.
func stands(st *mysqld.ReplicaStatus) error {
	switch {
	case st.SQLErrno != 0 || !st.SQLRunning:
		return fmt.Errorf("mysqld cannot apply the log: error %d: %s", st.SQLErrno, st.SQLError)
	case st.IOErrno != 0 || st.IOState == "No":
		return fmt.Errorf("mysqld cannot fetch the log: error %d: %s", st.IOErrno, st.IOError)
	}
	return nil
}

// finish makes a plain server of it.
func (r *restoration) finish(ctx context.Context, srv *mysqld.Server) (*Restored, error) {
	admin := srv.Admin()
	executed, err := admin.GTIDExecuted(ctx)
	if err != nil {
		return nil, err
	}
	res := &Restored{Dir: r.Dir, DataDir: r.cfg.DataDir(), OptionFile: r.optionFile(), Socket: r.cfg.Socket(),
		Base: r.base.Name, Index: r.point.Index,
		PasswordFile: filepath.Join(r.Dir, passwordName), Newest: r.point.Newest, Bytes: r.base.Bytes, MySQL: r.base.MySQL,
		Command: []string{r.bin.Path, "--defaults-file=" + r.optionFile()}}
	if res.GTIDs, err = gtid.ParseSet(executed); err != nil {
		return nil, err
	}
	if lost := r.point.GTIDs.Subtract(res.GTIDs); !lost.Empty() {
		return nil, fmt.Errorf("transactions %s were applied and are not executed", lost)
	}
	prepared, err := admin.XARecover(ctx)
	if err != nil {
		return nil, err
	}
	for _, x := range prepared {
		res.RolledBack = append(res.RolledBack, x.String())
	}
	res.Proven = isEncrypted(r.From)
	if res.Administrators, err = r.hand(ctx, config.NewToken(), res.PasswordFile, prepared); err != nil {
		return nil, err
	}
	if err := srv.StopPolitely(ctx); err != nil {
		return nil, err
	}
	if err := r.writePlain(); err != nil {
		return nil, err
	}
	if err := os.Remove(filepath.Join(r.Dir, unfinishedName)); err != nil {
		return nil, err
	}
	return res, durable.SyncDir(r.Dir)
}

// hand gives the server to the user: root's password goes to a file. Trireme's own accounts are dropped, of
// whatever host: nodes know their passwords, and who could write to the backup may have made more of them. XA
// transactions that are prepared are rolled back: they would hold their locks over every restart, and nothing is there
// any more to end them. It returns the accounts with an administrator's rights.
func (r *restoration) hand(ctx context.Context, password, file string, prepared []mysqld.XID) (administrators []string,
	err error) {
	if err := os.WriteFile(file, []byte(password+"\n"), 0o600); err != nil {
		return nil, err
	}
	db, err := openSQL(r.cfg, r.cfg.Admin)
	if err != nil {
		return nil, err
	}
	defer func() { _ = db.Close() }()
	own, administrators, err := accounts(ctx, db)
	if err != nil {
		return nil, fmt.Errorf("restore: read the accounts: %w", err)
	}
	const root = "root@localhost"
	statements := []string{"SET GLOBAL super_read_only = OFF"}
	for _, x := range prepared { // no binary log has it: an applier has prepared it (mysqld.AdoptXA)
		statements = append(statements, fmt.Sprintf("XA ROLLBACK X'%x',X'%x',%d", x.Gtrid, x.Bqual, x.FormatID))
	}
	statements = append(statements, "SET sql_log_bin = 0", "RESET REPLICA ALL",
		"CREATE USER IF NOT EXISTS "+root, "ALTER USER "+root+" IDENTIFIED WITH caching_sha2_password BY '"+password+
			"' ACCOUNT UNLOCK",
		"GRANT ALL ON *.* TO "+root+" WITH GRANT OPTION", "DROP USER "+strings.Join(own, ", "))
	if err := withSQL(ctx, r.cfg, r.cfg.Admin, statements...); err != nil {
		return nil, fmt.Errorf("restore: hand over the accounts: %w", err)
	}
	return slices.DeleteFunc(administrators, func(who string) bool { return who == "'root'@'localhost'" }), nil
}

// isEncrypted reports whether a store's objects are authenticated: with a key that its writers alone have.
func isEncrypted(s Store) bool {
	k, ok := s.(keyed)
	return ok && k.keyID() != ""
}
