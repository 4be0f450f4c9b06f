package mysqld

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"trireme/internal/base/durable"
	"trireme/internal/base/failpoint"
)

// seedPoll is the pause between two looks at a clone's progress.
const seedPoll = 500 * time.Millisecond

// Seeding says where a new data directory comes from.
type Seeding struct {
	Host string // of the donor's mysqld, as this host reaches it
	Port int
	CA   []byte // in PEM: it must have signed the donor's certificate; empty: CAFile
	// the same in a file that mysqld's user can read; empty: the donor's certificate is not checked
	CAFile         string
	BytesPerSecond int64 // limit of what is read from the donor; 0: none
	// the data that is there goes when the copy is complete; there must be room for both
	KeepOld  bool
	Progress func(SeedProgress) // called now and then, and once all is copied; nil: not
	// asked when the copy is complete and old data is still there; an error throws the copy away
	Check func(context.Context) error
	// told before the copy counts, when old data is gone; an error throws it away
	Confirm func(context.Context) error
}

// SeedProgress is how far a clone has come.
type SeedProgress struct {
	Stage string // as performance_schema.clone_progress names it: FILE COPY, PAGE COPY, REDO COPY, FILE SYNC
	Done  uint64 // bytes copied
	Total uint64 // bytes to copy, as the donor estimates them
}

// Seed replaces the data directory by a copy of another server's, made by the CLONE plugin. No server of ours may be
// running. The old data is deleted just before the copy begins, so that no host needs room for both; with KeepOld it is
// deleted when the copy is complete and on disk. From then on there is no data directory until the new one is in its
// place, whatever happens in between.
//
// The copy is received by a server of its own in seed/, which clients cannot reach and which ends with it. While the
// donor does not answer, CLONE waits for it for minutes: the caller watches the donor and ends ctx.
func Seed(ctx context.Context, cfg Config, s Seeding) error {
	if err := cfg.seed(ctx, s); err != nil {
		return fmt.Errorf("seed %s from %s: %w", cfg.DataDir(), net.JoinHostPort(s.Host, strconv.Itoa(s.Port)), err)
	}
	return nil
}

// seedDir holds the receiving server's data directory and the copy.
func (c Config) seedDir() string    { return filepath.Join(c.Dir, "seed") }
func (c Config) seedRunner() string { return filepath.Join(c.seedDir(), "runner") }

func (c Config) seed(ctx context.Context, s Seeding) (err error) {
	if err := c.Validate(); err != nil {
		return err
	}
	for name := range c.Extra {
		// CLONE puts everything into one folder; a start with such an option would look for parts of it elsewhere.
		if placeOptions[canonical(name)] {
			return fmt.Errorf(
				"%w: mysql.options: a server with %s cannot be seeded; remove the line, so that all data is in one folder",
				ErrConfig, name)
		}
	}
	if err := c.makeDirs(); err != nil {
		return err
	}
	if err := c.killOrphans(ctx); err != nil {
		return err
	}
	dir := c.seedDir()
	runner, clone := c.seedRunner(), filepath.Join(dir, "clone")
	if err := c.clearTemp(ctx, runner, dir); err != nil {
		return err
	}
	if err := c.checkSpace(newDataBytes); err != nil {
		return err
	}
	if err := c.makeTemp(dir); err != nil {
		return err
	}
	defer func() {
		if rerr := os.RemoveAll(dir); rerr != nil {
			err = errors.Join(err, fmt.Errorf("remove what is left of the seeding: %w", rerr))
		}
	}()
	if err := c.carryOut(ctx, c.emptyStage(runner)); err != nil {
		return err
	}
	if err := c.receive(ctx, s, runner, clone); err != nil {
		return err
	}
	if s.KeepOld {
		if err := durable.SyncFS(c.Dir); err != nil {
			return err
		}
	}
	if s.Check != nil {
		if err := s.Check(ctx); err != nil {
			return err
		}
	}
	if s.KeepOld {
		if err := c.discard(); err != nil {
			return err
		}
	}
	if err := failpoint.Err("seed.copied"); err != nil {
		return err
	}
	return c.initialize(ctx, 0, func(tmp string) error {
		if err := os.Remove(tmp); err != nil { // the rename takes its place
			return err
		}
		if err := os.Rename(clone, tmp); err != nil {
			return err
		}
		if s.Confirm == nil {
			return nil
		}
		return s.Confirm(ctx)
	})
}

// receive runs a server on the empty data directory runner that clones the donor's data into the folder to.
func (c Config) receive(ctx context.Context, s Seeding, runner, to string) (err error) {
	socket := filepath.Join(filepath.Dir(c.Socket()), "seed.sock")
	for _, f := range []string{socket, socket + ".lock"} {
		if err := os.Remove(f); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	p, err := c.launch(launchSpec{
		args: append([]string{"--no-defaults", "--datadir=" + runner, "--skip-networking", "--skip-log-bin",
			"--loose-mysqlx=OFF",
			"--socket=" + socket, "--pid-file=" + filepath.Join(c.RunDir(), "seed.pid"), "--log-error=" + c.initLog(),
			"--secure-file-priv=NULL", "--log-error-verbosity=2", "--plugin-load-add=mysql_clone.so"}, c.formatOptions()...),
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.kill()) }() // it holds nothing that is worth a polite end
	root := laneSpec{socket: socket, account: Account{User: "root"}}
	work, watch := newLane(root), newLane(root)
	defer work.close()
	defer watch.close()
	upCtx, cancel := context.WithTimeout(ctx, initLimit)
	defer cancel()
	if err := waitReady(upCtx, p, work, c.initLog()); err != nil {
		return err
	}
	ca := s.CAFile
	if len(s.CA) > 0 {
		ca = c.cloneCAFile()
		if err := c.replaceOwned(ca, s.CA, 0o600); err != nil {
			return fmt.Errorf("prepare CLONE: %w", err)
		}
	}
	for _, q := range []string{
		"SET GLOBAL clone_ssl_ca = " + quote(ca),
		"SET GLOBAL clone_valid_donor_list = " + quote(s.Host+":"+strconv.Itoa(s.Port)),
		"SET GLOBAL clone_max_data_bandwidth = " + strconv.FormatInt((s.BytesPerSecond+1<<20-1)>>20, 10), // MiB/s
	} {
		if err := work.exec(ctx, q); err != nil {
			return fmt.Errorf("prepare CLONE: %w", err)
		}
	}
	failpoint.Hit("seed.receiver-up")
	if !s.KeepOld {
		if err := c.discard(); err != nil {
			return err
		}
		failpoint.Hit("seed.discarded")
	}
	return c.clone(ctx, s, to, work, watch)
}

// clone has the server clone over one connection, and asks it over another how far it is.
func (c Config) clone(ctx context.Context, s Seeding, to string, work, watch *lane) error {
	from := net.JoinHostPort(s.Host, strconv.Itoa(s.Port))
	done := make(chan error, 1)
	go func() {
		done <- work.exec(ctx, "CLONE INSTANCE FROM "+quote(c.Clone.User)+"@"+quote(s.Host)+":"+strconv.Itoa(s.Port)+
			" IDENTIFIED BY "+quote(c.Clone.Password)+" DATA DIRECTORY = "+quote(to)+" REQUIRE SSL")
	}()
	tick := time.NewTicker(seedPoll)
	defer tick.Stop()
	look := func() bool {
		if s.Progress == nil {
			return false
		}
		at, err := cloneProgress(ctx, watch)
		if err == nil {
			s.Progress(at)
		}
		return err == nil
	}
	for {
		select {
		case err := <-done:
			if err != nil {
				return fmt.Errorf("CLONE from %s: %w", from, explainClone(err))
			}
			look() // a small copy is over before the first tick
			return nil
		case <-tick.C:
			if look() {
				failpoint.Hit("seed.copying")
			}
		}
	}
}

// explainClone says what an operator cannot see in a donor's refusal: mysqld takes accounts with a host before those of
// any host, and one without a name is everybody's.
func explainClone(err error) error {
	if !strings.Contains(err.Error(), " 1045 : ") {
		return err
	}
	return fmt.Errorf(
		"%w An anonymous account with a host of its own, such as ''@'10.%%', is taken before trireme_clone@'%%': "+
			"DROP USER it, if there is one (SELECT Host FROM mysql.user WHERE User = '')", err)
}

// cloneProgress reads how far the clone has come. The estimate of the files' size is made by the donor at the
// beginning.
func cloneProgress(ctx context.Context, l *lane) (at SeedProgress, err error) {
	ctx, cancel := context.WithTimeout(ctx, quickLimit)
	defer cancel()
	t, err := l.query(ctx,
		"SELECT STAGE, STATE, ESTIMATE, DATA FROM performance_schema.clone_progress ORDER BY BEGIN_TIME")
	for _, r := range t {
		if r["state"] == "In Progress" {
			at.Stage = r["stage"]
		}
		total, _ := strconv.ParseUint(r["estimate"], 10, 64)
		done, _ := strconv.ParseUint(r["data"], 10, 64)
		at.Total += max(total, done)
		at.Done += done
	}
	return at, err
}

// discard removes the data directory: its name first, so that a crash in between leaves none, never half of one.
func (c Config) discard() error {
	old := c.discardedDir()
	if err := os.RemoveAll(old); err != nil {
		return fmt.Errorf("remove old data: %w", err)
	}
	if err := os.Rename(c.DataDir(), old); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove old data: %w", err)
	}
	if err := os.Remove(c.markerFile()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove old data: %w", err)
	}
	if err := durable.SyncDir(c.Dir); err != nil {
		return fmt.Errorf("remove old data: %w", err)
	}
	if err := os.RemoveAll(old); err != nil {
		return fmt.Errorf("remove old data: %w", err)
	}
	return nil
}

func (c Config) discardedDir() string { return c.DataDir() + ".old" }
