package rivals

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"trireme/internal/api"
	"trireme/internal/base/config"
	"trireme/internal/base/poll"
	"trireme/internal/ops/check"
	"trireme/internal/ops/demo"
)

// Backer is a running system of which backups are made while clients write to it. A tool is one of those of Backups;
// what a tool cannot do is ErrNotHere.
type Backer interface {
	// Copy makes a copy of all data in a directory that is not there yet, of the last replica and on its host.
	Copy(ctx context.Context, tool, dir string) error
	// Restore makes the data directory of a server of what Copy has made, in a directory that is not there yet, on this
	// machine.
	Restore(ctx context.Context, tool, from, to string) error
	// Archive begins to keep the log of all that is committed in a directory that is empty or not there.
	Archive(ctx context.Context, tool, dir string) (Archive, error)
}

// Archive of the log, which grows until Stop.
type Archive interface {
	// Now is a position of the log after everything that was committed before the call.
	Now(context.Context) (uint64, error)
	// Reached is the position up to which the log is in the archive.
	Reached() (uint64, error)
	Stop() error
}

// Checker is a running system that compares the data of its nodes while clients write.
type Checker interface {
	// Check compares tables of Database, with so much of each node's time.
	Check(ctx context.Context, tables []string, share float64) (check.Result, error)
}

// The tools of MySQL's own replication.
const (
	ToolClone     = "CLONE"
	ToolDump      = "mysqldump"
	ToolBinlog    = "mysqlbinlog"
	clonePlugin   = "mysql_clone.so"
	backupAnswers = 2 * time.Second // for one question about the archive
)

// BackupOptions are what the servers of a system need for its tools: lines of my.cnf.
func BackupOptions(s System) map[string]string {
	switch s.Name {
	case semisyncSystem.Name:
		return map[string]string{"plugin_load_add": "semisync_source.so;semisync_replica.so;" + clonePlugin}
	case asyncSystem.Name:
		return map[string]string{"plugin_load_add": clonePlugin}
	}
	return nil
}

// runCommand runs a program that makes or reads a backup. started is told of the process; the program ends with ctx.
func runCommand(ctx context.Context, c demo.Command, started func(pid int) error) error {
	p, err := demo.StartProcess(c)
	if err != nil {
		return err
	}
	if err := started(p.PID); err != nil {
		p.Kill()
		return err
	}
	select {
	case <-p.Done():
	case <-ctx.Done():
		p.Stop(stopLimit)
		return ctx.Err()
	}
	if err := p.Err(); err != nil {
		said, _ := os.ReadFile(c.LogFile)
		return fmt.Errorf("%s: %w: %s", filepath.Base(c.Path), err, lastLines(string(said), 5))
	}
	return nil
}

const stopLimit = 20 * time.Second // for a program to end when told to

// Copy is `trireme backup` on the last follower's host.
func (t *trireme) Copy(ctx context.Context, _, dir string) error {
	n := t.last()
	return runCommand(ctx, t.trireme(n, dir+".log", "backup", "--to", dir), t.within(n))
}

// last is the data node from which backups are made.
func (t *trireme) last() *demo.Node {
	all := t.DataNodes()
	return all[len(all)-1]
}

// trireme is our own program on a node's host, with the node's settings.
func (t *trireme) trireme(n *demo.Node, log string, args ...string) demo.Command {
	c := demo.Command{Path: t.binary, Args: append(args, "--config", filepath.Join(n.Dir, config.NodeFileName)),
		Dir: "/", LogFile: log}
	if t.Network() != nil {
		c.Enter = t.Network().Host(n.Name).Enter
	}
	return c
}

// within puts a process under the CPU budget of a node's host.
func (t *trireme) within(n *demo.Node) func(pid int) error {
	return func(pid int) error {
		return t.hosts.Limit(n.Name, pid)
	}
}

// Restore is `trireme restore`.
func (t *trireme) Restore(ctx context.Context, _, from, to string) error {
	c := demo.Command{Path: t.binary, Args: []string{"restore", "--from", from, "--data", to, "--mysqld", t.mysqld},
		Dir: "/", LogFile: to + ".log"}
	return runCommand(ctx, c, func(int) error { return nil })
}

// triremeArchive is a `trireme backup --follow` on the last follower's host.
type triremeArchive struct {
	proc   *demo.Process
	client *api.Client
	dir    string
}

// Archive returns once the copy is made with which the archive begins.
func (t *trireme) Archive(ctx context.Context, _, dir string) (Archive, error) {
	n := t.last()
	c := t.trireme(n, dir+".log", "backup", "--follow", "--to", dir)
	p, err := demo.StartProcess(c)
	if err != nil {
		return nil, err
	}
	a := &triremeArchive{p, t.Client(n), dir}
	if err = t.within(n)(p.PID); err == nil {
		err = poll.Within(ctx, copyLimit, "the copy with which the archive begins", func(context.Context) error {
			if !p.Alive() {
				said, _ := os.ReadFile(c.LogFile)
				return fmt.Errorf("trireme backup has ended: %s", lastLines(string(said), 5))
			}
			if made, err := filepath.Glob(filepath.Join(dir, "base", "*", "manifest.json")); err != nil || len(made) == 0 {
				return errors.Join(errors.New("it is not made yet"), err)
			}
			return nil
		})
	}
	if err != nil {
		return nil, errors.Join(err, a.Stop())
	}
	return a, nil
}

const copyLimit = 20 * time.Minute

// Now is an index of the raft log, by the word of a majority.
func (a *triremeArchive) Now(ctx context.Context) (uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, backupAnswers)
	defer cancel()
	v, err := a.client.ReadIndex(ctx, api.ReadIndexQuery{})
	return v.Index, err
}

// Reached by the names of the segments: FIRST-LAST.seg (docs/format/backup.md).
func (a *triremeArchive) Reached() (uint64, error) {
	if !a.proc.Alive() {
		return 0, errors.New("trireme backup has ended")
	}
	names, err := filepath.Glob(filepath.Join(a.dir, "log", "*-*.seg"))
	if err != nil || len(names) == 0 {
		return 0, err
	}
	_, last, _ := strings.Cut(strings.TrimSuffix(filepath.Base(slices.Max(names)), ".seg"), "-")
	return strconv.ParseUint(last, 16, 64)
}

func (a *triremeArchive) Stop() error {
	a.client.Close()
	if err := a.proc.Signal(syscall.SIGINT); err != nil {
		return err
	}
	if !a.proc.Stop(stopLimit) {
		return errors.New("trireme backup did not end when told to")
	}
	return nil
}

// Check is `trireme check`, by the application's account, which sees everything. It does not wait for a quiet leader.
func (t *trireme) Check(ctx context.Context, tables []string, share float64) (check.Result, error) {
	s := t.State()
	o := check.Options{Cluster: check.Ask{Client: t.asked}, User: s.User, Password: s.Password, Share: share,
		MaxLag: 2 * time.Second, MaxBusy: 1000, Say: func(string, ...any) {}, Progress: func(check.Progress) {}}
	for _, name := range tables {
		o.Only = append(o.Only, Database+"."+name)
	}
	return check.Run(ctx, o)
}

// tool finds a program that is shipped with mysqld.
func (l *Lab) tool(name string) (string, error) {
	path, err := exec.LookPath(filepath.Join(filepath.Dir(l.MySQL), name))
	if err != nil {
		path, err = exec.LookPath(name)
	}
	if err != nil {
		return "", fmt.Errorf("%w: there is no %s in mysqld's directory", ErrNotHere, name)
	}
	return path, nil
}

// login are the options of MySQL's programs for a server.
func (s *server) login(options ...string) []string {
	return append([]string{"--no-defaults", "--host=" + s.host.addr, "--port=" + strconv.Itoa(s.port), "--protocol=TCP",
		"--user=" + User, "--password=" + Password}, options...)
}

// Copy is CLONE LOCAL DATA DIRECTORY or mysqldump --single-transaction, of the last replica.
func (r *replication) Copy(ctx context.Context, tool, dir string) error {
	s := r.servers[len(r.servers)-1]
	switch tool {
	case ToolClone:
		return s.exec(ctx, "CLONE LOCAL DATA DIRECTORY = '"+dir+"'")
	case ToolDump:
		program, err := r.site.lab.tool("mysqldump")
		if err != nil {
			return err
		}
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
		c := demo.Command{Path: program, Args: s.login("--single-transaction", "--set-gtid-purged=COMMENTED",
			"--result-file="+dumpFile(dir), "--databases", Database), Dir: "/", LogFile: dir + ".log"}
		if r.site.net != nil {
			c.Enter = r.site.net.Host(s.host.name).Enter
		}
		return runCommand(ctx, c, func(pid int) error {
			if s.host.budget == nil {
				return nil
			}
			return s.host.budget.Add(pid)
		})
	}
	return fmt.Errorf("%w: %s makes no copy", ErrNotHere, tool)
}

func dumpFile(dir string) string { return filepath.Join(dir, "dump.sql") }

// Restore starts a server on a copy of what CLONE has made, or lets a new one read the dump, without a binary log and
// with flushing put off.
func (r *replication) Restore(ctx context.Context, tool, from, to string) (err error) {
	h := &host{name: "restored", addr: "127.0.0.1", dir: to, site: &site{lab: r.site.lab}}
	if err := os.MkdirAll(to, 0o755); err != nil {
		return err
	}
	o := SharedOptions()
	maps.Copy(o, map[string]string{"disable_log_bin": "ON", "innodb_flush_log_at_trx_commit": "2",
		"skip_replica_start": "ON"})
	var s *server
	switch tool {
	case ToolClone:
		if err = h.copyData(from); err == nil {
			s, err = h.startOn(ctx, 99, o)
		}
	case ToolDump:
		s, err = h.startServer(ctx, 99, o)
	default:
		err = fmt.Errorf("%w: %s makes no copy", ErrNotHere, tool)
	}
	if err != nil {
		return err
	}
	defer s.stop()
	if tool == ToolClone {
		return nil
	}
	program, err := r.site.lab.tool("mysql")
	if err != nil {
		return err
	}
	dump, err := os.Open(dumpFile(from))
	if err != nil {
		return err
	}
	defer dump.Close()
	cmd := exec.CommandContext(ctx, program, s.login(Database)...)
	cmd.Stdin = dump
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("mysql: %w: %s", err, lastLines(string(out), 5))
	}
	return nil
}

// binlogArchive is a mysqlbinlog that reads the source's binary log forever, on this machine.
type binlogArchive struct {
	proc   *demo.Process
	source *server
	dir    string
}

func (r *replication) Archive(ctx context.Context, tool, dir string) (Archive, error) {
	if tool != ToolBinlog {
		return nil, fmt.Errorf("%w: %s archives no log", ErrNotHere, tool)
	}
	program, err := r.site.lab.tool("mysqlbinlog")
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	source := r.servers[0]
	file, _, err := source.binlogEnd(ctx)
	if err != nil {
		return nil, err
	}
	p, err := demo.StartProcess(demo.Command{Path: program, Dir: dir, LogFile: dir + ".log",
		Args: source.login("--read-from-remote-server", "--raw", "--stop-never",
			"--connection-server-id=999", "--result-file="+dir+string(filepath.Separator), file)})
	if err != nil {
		return nil, err
	}
	return &binlogArchive{p, source, dir}, nil
}

// binlogEnd is the file that a server writes its binary log to, and its length.
func (s *server) binlogEnd(ctx context.Context) (file string, size uint64, err error) {
	var doDB, ignoreDB, gtids string
	err = s.db.QueryRowContext(ctx, "SHOW BINARY LOG STATUS").Scan(&file, &size, &doDB, &ignoreDB, &gtids)
	return file, size, err
}

// binlogPosition orders positions of a binary log: those of a later file are greater.
func binlogPosition(file string, size uint64) (uint64, error) {
	n, err := strconv.ParseUint(strings.TrimPrefix(filepath.Ext(file), "."), 10, 24)
	if err != nil || size >= 1<<40 {
		return 0, fmt.Errorf("position %d of the binary log %s cannot be compared: %w", size, file,
			cmp.Or(err, strconv.ErrRange))
	}
	return n<<40 | size, nil
}

// Now is the end of the source's binary log.
func (a *binlogArchive) Now(ctx context.Context) (uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, backupAnswers)
	defer cancel()
	file, size, err := a.source.binlogEnd(ctx)
	if err != nil {
		return 0, err
	}
	return binlogPosition(file, size)
}

// Reached is the end of the newest file. What it holds was written, not flushed to disk.
func (a *binlogArchive) Reached() (uint64, error) {
	if !a.proc.Alive() {
		said, _ := os.ReadFile(a.dir + ".log")
		return 0, fmt.Errorf("mysqlbinlog has ended: %s", lastLines(string(said), 3))
	}
	names, err := filepath.Glob(filepath.Join(a.dir, "binlog.[0-9]*"))
	if err != nil || len(names) == 0 {
		return 0, err
	}
	newest := slices.Max(names)
	info, err := os.Stat(newest)
	if err != nil {
		return 0, err
	}
	return binlogPosition(newest, uint64(info.Size()))
}

func (a *binlogArchive) Stop() error {
	a.proc.Kill() // it knows no other end
	return nil
}

// DirBytes is what the files below a directory take.
func DirBytes(dir string) (sum int64, err error) {
	err = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err == nil {
			sum += info.Size()
		}
		return err
	})
	return sum, err
}
