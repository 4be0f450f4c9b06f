package rivals

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strconv"
	"sync"
	"syscall"

	"trireme/internal/access/router"
	"trireme/internal/base/poll"
	"trireme/internal/ops/demo"
	"trireme/lab/faultfs"
	"trireme/lab/verify"
	"trireme/lab/wan"
)

// rival is what replication and groups have in common: plain servers on the hosts of a site.
type rival struct {
	site    *site
	servers []*server // those that take writes first
	clients moving
	broken  keeper // nil until there may be faults
}

// keeper is a rival under faults.
type keeper interface {
	Breakable
	end()
}

func (r *rival) DB(host string) *sql.DB {
	if s := serverOn(r.servers, host); s != nil {
		return s.db
	}
	return nil
}

// serverOn is the server on a host, nil if the host has no server.
func serverOn(servers []*server, host string) *server {
	for _, s := range servers {
		if s.host.name == host {
			return s
		}
	}
	return nil
}

func (r *rival) Disk(host string) *faultfs.FS { return r.site.diskOf(host) }

func (r *rival) Network() *wan.Net { return r.site.net }

func (r *rival) Login() verify.Login {
	r.clients.set(r.servers[0])
	return r.clients.login()
}

func (r *rival) Serving(context.Context) (verify.Endpoint, error) {
	list, err := endpointsOf(r.servers[:1])
	if err != nil {
		return verify.Endpoint{}, err
	}
	return list[0], nil
}

func (r *rival) Locker(host string) (*sql.DB, error) {
	if s := serverOn(r.servers, host); s != nil {
		return s.target().Open("", statementLimit)
	}
	return nil, fmt.Errorf("there is no server on %s", host)
}

func (r *rival) Stop() error {
	if r.broken != nil {
		r.broken.end()
	}
	for _, s := range r.servers {
		s.stop()
	}
	return r.site.close()
}

// passThrough starts a router of Trireme's, which leads clients where it is told to.
func (r *rival) passThrough() (*router.Router, error) {
	first := ports.take(2)
	local := func(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }
	rt := router.New(router.Config{RWListen: local(first), ROListen: local(first + 1), HoldTimeout: recoverLimit,
		Logger: slog.New(slog.DiscardHandler)})
	return rt, rt.Start()
}

// kept is a rival as it is kept under faults: what ends is started again, as by a service manager.
type kept struct {
	base   *rival
	router *router.Router // leads the clients; nil: the system has its own
	addr   string         // where they go
	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu     sync.Mutex // guards what follows, and the servers and their processes from now on
	leader Lead
	held   map[*server]bool // whose hosts have no power
}

func (k *kept) begin(base *rival, rt *router.Router, addr string) {
	k.base, k.router, k.addr, k.held = base, rt, addr, map[*server]bool{}
	k.ctx, k.cancel = context.WithCancel(context.Background())
}

// end of the faults: nothing is started again.
func (k *kept) end() {
	k.cancel()
	k.mu.Lock()
	for _, s := range k.base.servers {
		_ = s.proc.Signal(syscall.SIGKILL) // a frozen one would not end a statement
	}
	k.mu.Unlock()
	k.wg.Wait()
	if k.router != nil {
		k.router.Close()
	}
}

// keep starts a server again whenever it has ended, unless its host has no power or it has to rest, which is asked with
// mu held.
func (k *kept) keep(s *server, rests func(*server) bool) {
	for {
		select {
		case <-k.ctx.Done():
			return
		case <-k.process(s).Done():
		}
		if poll.Pause(k.ctx, restart) != nil {
			return
		}
		k.mu.Lock()
		if k.ctx.Err() == nil && !k.held[s] && !rests(s) {
			if p, err := s.host.start(s.command); err == nil { // an error is seen by Settled
				s.proc = p
			}
		}
		k.mu.Unlock()
	}
}

// all servers as they are now.
func (k *kept) all() []*server {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Clone(k.base.servers)
}

func (k *kept) server(name string) *server { return serverOn(k.all(), name) }

func (k *kept) process(s *server) *demo.Process {
	k.mu.Lock()
	defer k.mu.Unlock()
	return s.proc
}

func (k *kept) Login() verify.Login {
	return verify.Login{Addr: verify.Fixed(k.addr), User: User, Password: Password}
}

func (k *kept) Names() []string {
	var out []string
	for _, h := range k.base.site.hosts {
		out = append(out, h.name)
	}
	return out
}

// Leader returns the server that takes writes now; without a name, none has done so yet.
func (k *kept) Leader(context.Context) (Lead, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.leader, nil
}

func (k *kept) Processes(name string) []int { return []int{k.process(k.server(name)).PID} }

func (k *kept) Endpoints() ([]verify.Endpoint, error) { return endpointsOf(k.all()) }

// hit makes a fault of those that all rivals know.
func (k *kept) hit(f Fault, name string) (known bool, err error) {
	switch f {
	case KillMySQL:
		return true, kill(k.Processes(name)[0])
	case EndNode:
		return true, k.process(k.server(name)).Signal(syscall.SIGTERM)
	case StopHost:
		return true, k.process(k.server(name)).Signal(syscall.SIGSTOP)
	case LoseHost, Partition:
		return true, f.cutOff(k.base.Network(), name)
	}
	return false, nil
}

func (k *kept) Undo(_ context.Context, f Fault, name string) error {
	if f == LoseHost || f == Partition {
		return k.base.Network().RestoreAll()
	}
	return k.process(k.server(name)).Signal(syscall.SIGCONT)
}

// CutPower keeps the servers down besides.
func (k *kept) CutPower(hosts []string) (lost []string, err error) {
	disks := map[string]*faultfs.FS{}
	var procs []*demo.Process
	k.mu.Lock()
	for _, s := range k.base.servers {
		if slices.Contains(hosts, s.host.name) {
			k.held[s] = true
			disks[s.host.name] = s.host.disk
			procs = append(procs, s.proc)
		}
	}
	k.mu.Unlock()
	return cutPower(procs, disks)
}

// GivePower lets the servers be started again.
func (k *kept) GivePower(hosts []string) error {
	var errs []error
	for _, h := range hosts {
		s := k.server(h)
		<-k.process(s).Done() // keep starts nothing while it is held
		errs = append(errs, s.host.disk.PowerOn())
		k.mu.Lock()
		delete(k.held, s)
		k.mu.Unlock()
	}
	return errors.Join(errs...)
}
