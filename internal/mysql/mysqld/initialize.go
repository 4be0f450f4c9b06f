package mysqld

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"trireme/internal/base/durable"

	"golang.org/x/sys/unix"
)

const (
	// initLimit bounds one run of mysqld --initialize (3–4 s on an idle machine).
	initLimit = 3 * time.Minute
	// newDataBytes must be free for a new data directory; mysqld makes about 190 MB at once.
	newDataBytes = 512 << 20
	// startBytes must be free for a start: temporary tables, logs and redo of a server that has its data already.
	startBytes = 64 << 20
)

// marker is written next to the data directory just before its rename completes it. If a data directory has no marker,
// Trireme has not made it.
type marker struct {
	Version string    `json:"mysql_version"`
	Made    time.Time `json:"made"`
}

func (c Config) markerFile() string { return filepath.Join(c.Dir, "initialized.json") }

// Initialized reports whether Initialize has completed here.
func (c Config) Initialized() bool {
	_, err := os.Stat(c.markerFile())
	_, dataErr := os.Stat(c.DataDir())
	return err == nil && dataErr == nil
}

// Initialize makes the data directory with Trireme's accounts in it, whole or not at all. No GTID is used, so that all
// nodes of a new cluster begin with the same, empty gtid_executed. Errors: ErrInitialized, ErrForeignData, ErrNoSpace,
// ErrExited.
func Initialize(ctx context.Context, cfg Config) error {
	// A seeding that ended with its daemon may have left gigabytes.
	if err := cfg.clearTemp(ctx, cfg.seedRunner(), cfg.seedDir()); err != nil {
		return err
	}
	return cfg.initialize(ctx, newDataBytes, func(tmp string) error {
		var secret [24]byte
		// never fails: crypto/rand crashes the program instead
		_, _ = rand.Read(secret[:])
		for _, s := range cfg.stages(tmp, hex.EncodeToString(secret[:])) { // nothing but these, so that Recipe tells all
			if err := cfg.carryOut(ctx, s); err != nil {
				return err
			}
		}
		return nil
	})
}

// InitializeFrom does what Initialize does, in a fraction of the time, by copying the data directory below templateDir,
// the Dir of another Config whose server is not running. Accounts and TLS keys are the template's: cfg must name the
// same accounts and passwords. syncfs makes the copy durable; FUSE file systems do not hear of it.
func InitializeFrom(ctx context.Context, cfg Config, templateDir string) error {
	from := Config{Dir: templateDir}
	if !from.Initialized() {
		return fmt.Errorf("%w: template %s", ErrNotInitialized, templateDir)
	}
	return cfg.initialize(ctx, newDataBytes, func(tmp string) error { return cfg.copyTree(ctx, from.DataDir(), tmp) })
}

// initialize runs fill, which needs so many bytes, on a folder next to data/ and renames it to data/ when it is
// complete and on disk.
func (c Config) initialize(ctx context.Context, need uint64, fill func(tmp string) error) error {
	if err := c.Validate(); err != nil {
		return err
	}
	if err := c.checkAbsent(); err != nil {
		return err
	}
	if err := c.makeDirs(); err != nil {
		return err
	}
	if err := c.checkSpace(need); err != nil {
		return err
	}
	tmp := c.DataDir() + ".new"
	if err := c.clearTemp(ctx, tmp, tmp); err != nil {
		return err
	}
	if err := c.makeTemp(tmp); err != nil {
		return err
	}
	err := fill(tmp)
	if err == nil {
		_, _, err = ownerOf(tmp) // a folder, and no link that mysqld's user has put there
	}
	if err != nil {
		_ = os.RemoveAll(tmp)
		return fmt.Errorf("initialise %s: %w", c.DataDir(), err)
	}
	// A server_uuid of the template's would be used twice (S5).
	if err := os.Remove(filepath.Join(tmp, "auto.cnf")); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("initialise %s: %w", c.DataDir(), err)
	}
	if err := durable.SyncFS(c.Dir); err != nil {
		return err
	}
	// The marker goes first: after a crash in between there is no data directory yet, and Initialize runs again.
	if err := c.writeMarker(); err != nil {
		return err
	}
	if err := os.Rename(tmp, c.DataDir()); err != nil {
		return fmt.Errorf("initialise: %w", err)
	}
	if err := durable.SyncDir(c.Dir); err != nil {
		return fmt.Errorf("initialise: %w", err)
	}
	return nil
}

// makeTemp: mysqld's user may not make folders in Dir itself.
func (c Config) makeTemp(tmp string) error {
	uid, gid, other, err := c.runsAs()
	if err != nil {
		return err
	}
	if err := os.Mkdir(tmp, 0o750); err != nil {
		return fmt.Errorf("initialise: %w", err)
	}
	if other {
		if err := os.Lchown(tmp, uid, gid); err != nil {
			return fmt.Errorf("initialise: %w", err)
		}
	}
	return nil
}

// checkAbsent: a data directory that is there is never overwritten.
func (c Config) checkAbsent() error {
	switch {
	case c.Initialized():
		return fmt.Errorf("%w: %s", ErrInitialized, c.DataDir())
	case isEmptyDir(c.DataDir()):
		return nil
	}
	return fmt.Errorf("%w: %s; move it away, or bring its data in with `trireme adopt`", ErrForeignData, c.DataDir())
}

// isEmptyDir is true for a folder that holds nothing or is not there.
func isEmptyDir(path string) bool {
	entries, err := os.ReadDir(path)
	return errors.Is(err, fs.ErrNotExist) || err == nil && len(entries) == 0
}

// clearTemp removes what an interrupted run has left: the server on datadir, and folder, and old data that was being
// removed.
func (c Config) clearTemp(ctx context.Context, datadir, folder string) error {
	if err := c.endLeftover(ctx, datadir); err != nil {
		return err
	}
	for _, dir := range []string{folder, c.discardedDir()} {
		if err := os.RemoveAll(dir); err != nil {
			return fmt.Errorf("remove an unfinished data directory: %w", err)
		}
	}
	return nil
}

func (c Config) writeMarker() error {
	b, err := json.Marshal(marker{c.Binary.Version.Raw, time.Now().UTC()})
	if err != nil {
		return fmt.Errorf("initialise: %w", err)
	}
	if err := durable.WriteFile(c.markerFile(), b, 0o644); err != nil {
		return fmt.Errorf("initialise: %w", err)
	}
	return nil
}

// stage is one run of mysqld on a data directory that is being made: with statements it serves until they are done,
// else it ends by itself.
type stage struct{ args, statements []string }

// stages are all that mysqld does to a data directory while Initialize makes it: an empty one, then Trireme's accounts,
// on a server that only this process can reach and that writes no binary log, so that no GTID is used.
func (c Config) stages(data, rootPassword string) []stage {
	return []stage{
		c.emptyStage(data),
		{args: append([]string{"--no-defaults", "--datadir=" + data, "--skip-networking", "--skip-log-bin",
			"--loose-mysqlx=OFF",
			"--socket=" + c.initSocket(), "--pid-file=" + filepath.Join(c.RunDir(), "init.pid"), "--log-error=" + c.initLog(),
			"--secure-file-priv=NULL", "--log-error-verbosity=2"}, c.formatOptions()...),
			// The same on every node, salts aside.
			statements: append(c.ownAccounts(), "ALTER USER 'root'@'localhost' IDENTIFIED BY "+quote(rootPassword)+
				" ACCOUNT LOCK")},
	}
}

// emptyStage makes the directory: root@localhost, without a password.
func (c Config) emptyStage(data string) stage {
	return stage{args: append([]string{"--no-defaults", "--initialize-insecure", "--datadir=" + data,
		"--log-error=" + c.initLog(),
		"--log-error-verbosity=2"}, c.formatOptions()...)}
}

// Recipe tells all that shapes a data directory which Initialize makes with this configuration, wherever Dir is: two
// that have the same recipe and were made by the same program can take each other's place. It holds the accounts'
// passwords.
func (c Config) Recipe() string {
	c.Dir = "/"
	return fmt.Sprintf("%s: %q as %q", c.Binary.Version.Raw, c.stages("/data", ""), c.OSUser)
}

func (c Config) carryOut(ctx context.Context, s stage) error {
	ctx, cancel := context.WithTimeout(ctx, initLimit)
	defer cancel()
	if len(s.statements) > 0 {
		return c.runStatements(ctx, s)
	}
	p, err := c.launch(launchSpec{args: s.args})
	if err != nil {
		return err
	}
	select {
	case <-p.done:
	case <-ctx.Done():
		return errors.Join(fmt.Errorf("%w: mysqld --initialize: %w", ErrTimeout, ctx.Err()), p.kill())
	}
	if p.exit.Code != 0 || p.exit.Signal != 0 {
		return exitError("mysqld --initialize", p.exit, c.initLog(), p.logStart)
	}
	return nil
}

// runStatements as root.
func (c Config) runStatements(ctx context.Context, s stage) error {
	_ = os.Remove(c.initSocket())
	_ = os.Remove(c.initSocket() + ".lock")
	p, err := c.launch(launchSpec{args: s.args})
	if err != nil {
		return err
	}
	defer func() { _ = p.kill() }() // returns at once after the polite end below
	l := newLane(laneSpec{socket: c.initSocket(), account: Account{User: "root"}})
	defer l.close()
	if err := waitReady(ctx, p, l, c.initLog()); err != nil {
		return err
	}
	for _, q := range s.statements {
		if err := l.exec(ctx, q); err != nil {
			// The statement holds passwords: only its first words are shown.
			return fmt.Errorf("create Trireme's accounts: %s …: %w", strings.Join(strings.Fields(q)[:2], " "), err)
		}
	}
	// No session waits on a server without a binary log: a clean shutdown leaves clean files.
	if err := p.signal(unix.SIGTERM); err != nil {
		return err
	}
	select {
	case <-p.done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%w: stopping the server that makes the accounts: %w", ErrTimeout, ctx.Err())
	}
}

// shapeOptions give the data directory its form, placeOptions put parts of it elsewhere.
var (
	shapeOptions = map[string]bool{"lower_case_table_names": true, "innodb_page_size": true, "innodb_data_file_path": true}
	placeOptions = map[string]bool{"innodb_data_home_dir": true, "innodb_undo_directory": true,
		"innodb_log_group_home_dir": true,
		"innodb_directories":        true, "innodb_doublewrite_dir": true}
)

// formatOptions are the operator's options that shape the data directory itself, in the order of their names: they must
// be there from the beginning, and the same at every start.
func (c Config) formatOptions() []string {
	var args []string
	for _, name := range slices.Sorted(maps.Keys(c.Extra)) {
		key := canonical(name)
		if shapeOptions[key] || placeOptions[key] {
			args = append(args, "--"+key+"="+c.Extra[name])
		}
	}
	return args
}

func (c Config) initLog() string { return filepath.Join(c.LogDir(), "initialize.err") }

func (c Config) initSocket() string { return filepath.Join(filepath.Dir(c.Socket()), "init.sock") }

// replHosts are where the daemon dumps its mysqld from.
var replHosts = []string{"localhost", "127.0.0.1", "::1"}

// startFile is what mysqld runs before it lets anybody log in.
func (c Config) startFile() string { return filepath.Join(c.RunDir(), "start.sql") }

// startStatements give the accounts of this host, Admin and Repl, the passwords of this configuration. So no other
// server's passwords are good here, whatever data this one began with, a copy of another one's for example. The binary
// log does not have them.
func (c Config) startStatements() string {
	b := []byte("SET SESSION sql_log_bin = 0;\n")
	for _, a := range c.localAccounts() {
		who := "ALTER USER IF EXISTS " + quote(a.User) + "@" + quote(a.host)
		// A server that demands other passwords each time must not refuse the one that it has.
		b = append(b, who+" PASSWORD HISTORY 0 PASSWORD REUSE INTERVAL 0 DAY;\n"...)
		b = append(b, who+" IDENTIFIED WITH caching_sha2_password BY "+quote(a.Password)+";\n"...)
	}
	return string(b)
}

// localAccount can log in from one address of this host.
type localAccount struct {
	Account
	host string
}

func (c Config) localAccounts() []localAccount {
	all := []localAccount{{c.Admin, "localhost"}}
	for _, host := range replHosts {
		all = append(all, localAccount{c.Repl, host})
	}
	return all
}

// ownAccounts make Trireme's accounts.
func (c Config) ownAccounts() []string {
	var q []string
	create := func(a Account, host string) string {
		who := quote(a.User) + "@" + quote(host)
		q = append(q, "CREATE USER "+who+" IDENTIFIED WITH caching_sha2_password BY "+quote(a.Password)+
			" PASSWORD EXPIRE NEVER")
		return who
	}
	admin := create(c.Admin, "localhost")
	// GRANT ALL covers every privilege that this server version knows, SYSTEM_USER among them.
	q = append(q, "GRANT ALL ON *.* TO "+admin+" WITH GRANT OPTION")
	for _, host := range replHosts {
		repl := create(c.Repl, host)
		q = append(q, "GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO "+repl,
			// Without SYSTEM_USER an application's CREATE USER could change the password; with CONNECTION_ADMIN the dump gets a
			// connection when max_connections is reached.
			"GRANT SYSTEM_USER, CONNECTION_ADMIN ON *.* TO "+repl)
	}
	if c.Clone.User != "" {
		// SYSTEM_USER for the same reason.
		clone := create(c.Clone, "%")
		q = append(q, "ALTER USER "+clone+" REQUIRE SSL", "GRANT BACKUP_ADMIN, SYSTEM_USER ON *.* TO "+clone)
	}
	return q
}

// copyTree copies a data directory, giving the copy to mysqld's user.
func (c Config) copyTree(ctx context.Context, from, to string) error {
	uid, gid, err := c.owner()
	if err != nil {
		return err
	}
	var folders []string
	err = filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		rel, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		switch {
		case d.IsDir():
			if rel != "." {
				folders = append(folders, rel)
				err = MkdirOwned(to, rel, info.Mode().Perm(), -1, -1)
			}
		case info.Mode().IsRegular():
			err = copyFile(path, to, rel, info.Mode().Perm(), uid, gid)
		default:
			return nil // sockets and links: nothing that InnoDB needs
		}
		return err
	})
	for _, f := range folders { // once they are full: until then they are the daemon's
		if err == nil {
			err = MkdirOwned(to, f, 0, uid, gid)
		}
	}
	return err
}

func copyFile(from, dir, to string, mode fs.FileMode, uid, gid int) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }()
	out, err := CreateOwned(dir, to, mode, uid, gid)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in) // copy_file_range: shares blocks where the file system can
	return errors.Join(err, out.Close())
}
