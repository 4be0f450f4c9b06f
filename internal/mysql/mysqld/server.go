package mysqld

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"time"

	"trireme/internal/base/failpoint"
	"trireme/internal/base/mutant"
)

const (
	// politeLimit bounds StopPolitely: the flush of a large buffer pool.
	politeLimit = 2 * time.Minute
	// reapLimit is how long the end of a process may come after the loss of its connections.
	reapLimit = 200 * time.Millisecond
	// keepErrorLog is the size above which a start begins a new mysqld.err; it keeps one old file.
	keepErrorLog = 16 << 20
)

// Server runs one mysqld, one life after the other. Methods may be called from any goroutine.
type Server struct {
	cfg Config

	mu    sync.Mutex // guards what is below
	life  *life      // the newest, possibly over; nil before the first Start
	begin bool       // a Start is under way
}

// life is one incarnation's process and what belongs to it.
type life struct {
	*child
	uuid       string
	admin      *Admin
	socketGone chan struct{}
}

// New checks cfg; it touches nothing.
func New(cfg Config) (*Server, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg.Extra = maps.Clone(cfg.Extra)
	return &Server{cfg: cfg}, nil
}

// Config is what the server was made with.
func (s *Server) Config() Config { return s.cfg }

var uuidForm = regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$`)

// Start begins a new incarnation with the given server_uuid, as the package comment tells, and returns once Admin
// works. Crash recovery may take minutes: only ctx bounds it. On error no mysqld is left running. Errors: ErrRunning
// and all of Check's, ErrExited with mysqld's own words, ErrTimeout, ErrAccess, ErrWrongSettings, ErrNonTransaction.
// Until it returns, Kill and the others speak of the life before: end a start by its ctx.
func (s *Server) Start(ctx context.Context, uuid string) error {
	if !uuidForm.MatchString(uuid) {
		return fmt.Errorf("%w: server_uuid %q", ErrConfig, uuid)
	}
	if err := s.beginStart(); err != nil {
		return err
	}
	l, err := s.cfg.startLife(ctx, uuid)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.begin = false
	if err != nil {
		return err
	}
	s.life = l
	return nil
}

func (s *Server) beginStart() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.begin {
		return fmt.Errorf("%w: another start is under way", ErrRunning)
	}
	if s.life != nil {
		select {
		case <-s.life.done:
		default:
			return fmt.Errorf("%w: pid %d", ErrRunning, s.life.pid)
		}
	}
	s.begin = true
	return nil
}

// startLife prepares the folders, forks, and waits until the server is fit for use.
func (c Config) startLife(ctx context.Context, uuid string) (*life, error) {
	if err := c.makeDirs(); err != nil {
		return nil, err
	}
	if err := c.killOrphans(ctx); err != nil {
		return nil, err
	}
	if err := Check(ctx, c); err != nil {
		return nil, err
	}
	if err := c.prepare(ctx, uuid); err != nil {
		return nil, err
	}
	failpoint.Hit("server.files-written")
	began := time.Now()
	defer func() { _ = os.Remove(c.startFile()) }() // the next start replaces one that is left
	p, err := c.launch(launchSpec{args: []string{"--defaults-file=" + c.optionFile(), "--init-file=" + c.startFile()}})
	if err != nil {
		return nil, err
	}
	l := &life{child: p, uuid: uuid, socketGone: make(chan struct{})}
	if err := c.awaitLife(ctx, l); err != nil {
		return nil, errors.Join(c.blame(p, err), p.kill())
	}
	failpoint.Hit("server.started")
	c.log().Info("mysqld started", "pid", p.pid, "server_uuid", uuid, "version", c.Binary.Version.Raw,
		"socket", c.Socket(), "took", time.Since(began).Round(time.Millisecond))
	go func() {
		<-p.done
		l.admin.Close()
		c.log().Info("mysqld ended", "pid", p.pid, "how", p.exit.String(), "asked", p.exit.Asked)
	}()
	return l, nil
}

// blame finds out whether a start failed because mysqld ended: then its own words tell more than a lost connection.
func (c Config) blame(p *child, err error) error {
	if errors.Is(err, ErrExited) {
		return err
	}
	t := time.NewTimer(reapLimit)
	defer t.Stop()
	select {
	case <-p.done:
		return errors.Join(exitError("mysqld", p.exit, c.ErrorLog(), p.logStart), err)
	case <-t.C:
		return err
	}
}

// awaitLife opens the admin connections and refuses a server that is not what my.cnf asked for.
func (c Config) awaitLife(ctx context.Context, l *life) error {
	admin := newAdmin(c)
	if err := waitReady(ctx, l.child, admin.status, c.ErrorLog()); err != nil {
		admin.Close()
		return err
	}
	err := admin.openAll(ctx)
	if err == nil {
		err = admin.Check(ctx, l.uuid)
	}
	if err == nil {
		err = c.syncDoublewrite() // those that this start has made, or made longer
	}
	if err == nil {
		err = watchSocket(c.Socket(), l.done, &l.asked, l.socketGone)
	}
	if err != nil {
		admin.Close()
		return err
	}
	l.admin = admin
	return nil
}

// prepare makes the directory fit for a new incarnation. No process uses it now (killOrphans).
func (c Config) prepare(ctx context.Context, uuid string) error {
	for _, dir := range []string{c.BinlogDir(), c.RelayDir()} {
		if mutant.S5 && dir == c.BinlogDir() {
			continue
		}
		if err := emptyDir(dir); err != nil {
			return fmt.Errorf("delete the old log of %s: %w", filepath.Base(dir), err)
		}
	}
	failpoint.Hit("server.binlog-deleted")
	if err := errors.Join(c.mendDoublewrite(), c.syncDoublewrite(), c.mendRedo(ctx)); err != nil {
		return err
	}
	for _, f := range []string{c.Socket(), c.Socket() + ".lock", c.PidFile()} {
		if err := os.Remove(f); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove what a dead server left: %w", err)
		}
	}
	if st, err := os.Stat(c.ErrorLog()); err == nil && st.Size() > keepErrorLog {
		if err := os.Rename(c.ErrorLog(), c.ErrorLog()+".1"); err != nil {
			return fmt.Errorf("begin a new error log: %w", err)
		}
	}
	if err := c.writeTLS(c.TLS); err != nil {
		return err
	}
	files := []struct{ path, text string }{
		{filepath.Join(c.DataDir(), "auto.cnf"), "[auto]\nserver-uuid=" + uuid + "\n"},
		{c.optionFile(), c.options()},
		{c.startFile(), c.startStatements()},
	}
	for _, f := range files {
		if err := c.replaceOwned(f.path, []byte(f.text), 0o600); err != nil {
			return fmt.Errorf("write %s: %w", f.path, err)
		}
	}
	return nil
}

// emptyDir removes everything in dir. The index goes last: a crash in between leaves an index that names missing files,
// which the next start removes, and never files without an index, which a server could take for its own.
func emptyDir(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, index := range []bool{false, true} {
		for _, e := range entries {
			if strings.HasSuffix(e.Name(), ".index") != index {
				continue
			}
			if err := os.RemoveAll(filepath.Join(dir, e.Name())); err != nil {
				return err
			}
		}
	}
	return nil
}

func (s *Server) current() *life {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.life
}

// Admin is the current incarnation's; nil before the first Start. After the end of its incarnation its calls fail.
func (s *Server) Admin() *Admin {
	if l := s.current(); l != nil {
		return l.admin
	}
	return nil
}

// Done is closed when the current incarnation's process has been reaped. Nil before the first Start.
func (s *Server) Done() <-chan struct{} {
	if l := s.current(); l != nil {
		return l.done
	}
	return nil
}

// Dying is closed when the current incarnation's process is about to end: it runs no statement any more, but its
// sockets and its memory may be there for a while (Done). On Linux before 6.9 it is closed after Done. Nil before the
// first Start.
func (s *Server) Dying() <-chan struct{} {
	if l := s.current(); l != nil {
		return l.dying
	}
	return nil
}

// Exit says how the current incarnation ended; ok is false while it runs and before the first Start.
func (s *Server) Exit() (e Exit, ok bool) {
	l := s.current()
	if l == nil {
		return Exit{}, false
	}
	select {
	case <-l.done:
		return l.exit, true
	default:
		return Exit{}, false
	}
}

// SocketGone is closed when the socket file of a running server disappears without StopPolitely: somebody is shutting
// it down, and in some seconds it will release its waiters (S4). The caller should Kill at once. Nil before the first
// Start.
func (s *Server) SocketGone() <-chan struct{} {
	if l := s.current(); l != nil {
		return l.socketGone
	}
	return nil
}

// Pid of the current incarnation, 0 when none runs.
func (s *Server) Pid() int {
	l := s.current()
	if l == nil {
		return 0
	}
	select {
	case <-l.done:
		return 0
	default:
		return l.pid
	}
}

// Pidfd is a descriptor that names the current incarnation's process and can be passed on; the caller closes it.
func (s *Server) Pidfd() (*os.File, error) {
	l := s.current()
	if l == nil {
		return nil, fmt.Errorf("pidfd of mysqld: %w", os.ErrProcessDone)
	}
	f, err := l.handle()
	if err != nil {
		return nil, fmt.Errorf("pidfd of mysqld %d: %w", l.pid, err)
	}
	return f, nil
}

// UUID is the current incarnation's server_uuid, empty before the first Start.
func (s *Server) UUID() string {
	if l := s.current(); l != nil {
		return l.uuid
	}
	return ""
}

// Kill sends SIGKILL and returns once the process is reaped, at once if it was gone before. ErrNotReaped after 30 s.
func (s *Server) Kill() error {
	l := s.current()
	if l == nil {
		return nil
	}
	return l.kill()
}

// SendKill is Kill without the wait: the process runs no statement any more, and ends when the kernel is done with it
// (Done).
func (s *Server) SendKill() error {
	l := s.current()
	if l == nil {
		return nil
	}
	return l.signal(syscall.SIGKILL)
}

// StopPolitely sends SIGTERM and waits for the end. The caller guarantees that no session waits for an acknowledgement,
// and that none can come to wait (super_read_only is on): a polite stop would release them (S4). Other connections than
// Admin's should be closed before: mysqld waits 10 s for them. A server that does not end in time, or before ctx does,
// is killed, and the error is ErrTimeout.
func (s *Server) StopPolitely(ctx context.Context) error {
	l := s.current()
	if l == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, politeLimit)
	defer cancel()
	if err := l.signal(syscall.SIGTERM); err != nil {
		return err
	}
	// mysqld gives open connections 10 s to end by themselves, idle ones too.
	l.admin.Close()
	select {
	case <-l.done:
		return nil
	case <-ctx.Done():
		return errors.Join(fmt.Errorf("%w: mysqld %d did not stop and was killed: %w", ErrTimeout, l.pid, ctx.Err()),
			l.kill())
	}
}
