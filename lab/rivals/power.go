package rivals

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"

	"trireme/internal/api"
	"trireme/internal/base/config"
	"trireme/internal/base/poll"
	"trireme/internal/ops/demo"
	"trireme/lab/faultfs"
	"trireme/lab/verify"
)

// Dark is a Breakable whose hosts can lose power: a system that was started with Shape.Disks.
type Dark interface {
	Breakable
	// CutPower stops everything on some hosts in the middle of what it does, cuts the power of their disks and kills
	// what was stopped: nothing on a host sees an error of its disk. Nothing starts there until GivePower. It returns
	// the hosts whose disks lost something that was not flushed.
	CutPower(hosts []string) (lost []string, err error)
	GivePower(hosts []string) error
}

// Witness is a system that can tell how something came about.
type Witness interface {
	// Testify writes what it knows into a directory: logs, histories, states.
	Testify(ctx context.Context, dir string) error
}

// Addressed is a system whose nodes can be reached one by one by clients without privileges.
type Addressed interface {
	// Logins to the data nodes as they are now.
	Logins() []verify.NodeLogin
}

// Splitting is a system whose routers send each statement where it belongs.
type Splitting interface {
	// Split gives the address for the next connection.
	Split() func() string
}

// Streaming is a system that streams what it has committed in MySQL's replication protocol.
type Streaming interface {
	// Stream lets the clients' account read it, and gives the address for the next connection.
	Stream(ctx context.Context) (func() string, error)
}

func (t *trireme) Stream(ctx context.Context) (func() string, error) {
	leader, err := t.Cluster.Leader(ctx)
	if err != nil {
		return nil, err
	}
	db, err := t.Admin(leader)
	if err != nil {
		return nil, err
	}
	defer db.Close()
	_, err = db.ExecContext(ctx, "GRANT REPLICATION SLAVE ON *.* TO '"+t.State().User+"'@'%'")
	return t.Cluster.Stream(), err
}

// endLimit is for a process that has its SIGKILL to be gone.
const endLimit = 10 * time.Second

// CutPower: a host whose daemon is not running just then has nothing running, since mysqld dies with its daemon. Of a
// member that was removed and is not back yet only the disk is there; ErrAbsent: all hosts are of such members.
func (t *trireme) CutPower(hosts []string) (lost []string, err error) {
	var present, up []*demo.Node
	disks := map[string]*faultfs.FS{}
	for _, name := range hosts {
		disks[name] = t.disks[name]
		if n, err := t.present(name); err == nil {
			present = append(present, n)
		}
	}
	if len(present) == 0 {
		return nil, fmt.Errorf("%v: %w", hosts, ErrAbsent)
	}
	for _, n := range present {
		t.Hold(n)
		if n.DaemonPID() != 0 {
			up = append(up, n)
			t.watch.strike(n.Name)
		}
	}
	var errs []error
	for _, n := range up {
		if n.DaemonPID() != 0 { // it may have ended since
			errs = append(errs, t.HaltHost(n))
		}
	}
	lost, err = cutDisks(disks)
	for _, n := range up {
		_ = t.SignalHost(n, syscall.SIGKILL) // likewise
	}
	return lost, errors.Join(append(errs, err)...)
}

// cutPower of hosts with one process each.
func cutPower(procs []*demo.Process, disks map[string]*faultfs.FS) (lost []string, err error) {
	var pids []int
	for _, p := range procs {
		if p.Alive() {
			pids = append(pids, p.PID)
		}
	}
	halted := demo.Halt(pids...)
	lost, err = cutDisks(disks)
	for _, p := range procs {
		_ = p.Signal(syscall.SIGKILL) // it may have ended since
	}
	return lost, errors.Join(halted, err)
}

// cutDisks off at the same time, and say which of them lost something.
func cutDisks(disks map[string]*faultfs.FS) (lost []string, err error) {
	var mu sync.Mutex
	var wg sync.WaitGroup
	var errs []error
	for name, d := range disks {
		wg.Go(func() {
			perr := d.PowerOff()
			mu.Lock()
			defer mu.Unlock()
			errs = append(errs, perr)
			if perr == nil && d.Loss().Bytes() {
				lost = append(lost, name)
			}
		})
	}
	wg.Wait()
	slices.Sort(lost)
	return lost, errors.Join(errs...)
}

func (t *trireme) GivePower(hosts []string) error {
	var errs []error
	for _, name := range hosts {
		n, absent := t.present(name)
		if absent == nil {
			if err := waitGone(n); err != nil {
				errs = append(errs, err)
				continue
			}
		}
		if err := t.disks[name].PowerOn(); err != nil {
			errs = append(errs, err)
			continue
		}
		if absent == nil {
			t.Release(n)
		}
	}
	return errors.Join(errs...)
}

// Logins to each mysqld as the application.
func (t *trireme) Logins() []verify.NodeLogin {
	return verify.Nodes(t)()
}

// waitGone waits until a node's daemon has been reaped.
func waitGone(n *demo.Node) error {
	deadline := time.After(endLimit)
	for n.DaemonPID() != 0 {
		select {
		case <-deadline:
			return fmt.Errorf("%s: its daemon is not gone %v after SIGKILL", n.Name, endLimit)
		case <-time.After(time.Millisecond):
		}
	}
	return nil
}

// ErrAbsent: a member was removed, and is not back yet.
var ErrAbsent = errors.New("is not a member now")

// present is a member's node, or ErrAbsent.
func (t *trireme) present(name string) (*demo.Node, error) {
	for _, n := range t.Nodes() {
		if n.Name == name {
			return n, nil
		}
	}
	return nil, fmt.Errorf("%s: %w", name, ErrAbsent)
}

// askLeader has the leader do something, within a limit.
func (t *trireme) askLeader(ctx context.Context, limit time.Duration,
	f func(context.Context, *api.Client) error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	leader, err := t.Cluster.Leader(ctx)
	if err != nil {
		return err
	}
	cl := t.Client(leader)
	defer cl.Close()
	return f(ctx, cl)
}

const controlLimit = 10 * time.Second // of a control verb

// reseed has a member throw its data away and copy another's.
func (t *trireme) reseed(ctx context.Context, name string) error {
	return t.askLeader(ctx, controlLimit, func(ctx context.Context, cl *api.Client) error {
		_, err := api.Reinit.Ask(ctx, cl, api.MemberRequest{Name: name})
		return err
	})
}

// removeNode takes a member out of the cluster.
func (t *trireme) removeNode(ctx context.Context, name string) error {
	n, err := t.present(name)
	if err != nil {
		return err
	}
	err = t.askLeader(ctx, controlLimit, func(ctx context.Context, cl *api.Client) error {
		_, err := api.Remove.Ask(ctx, cl, api.MemberRequest{Name: name})
		return err
	})
	if err == nil {
		t.forget(n)
	}
	return err
}

// forget ends what runs for a former member.
func (t *trireme) forget(n *demo.Node) {
	t.Forget(n)
	t.watch.forget(t.logs(n))
	if db := t.dbs[n.Name]; db != nil {
		db.Close()
		delete(t.dbs, n.Name)
	}
}

// bringBack adds a removed member again on its host, with an empty directory. Whether the removal was done, or an
// earlier attempt to add it, is looked up: answers may have been lost.
func (t *trireme) bringBack(ctx context.Context, name, role string) error {
	return poll.Within(ctx, recoverLimit, name+" to be added again", func(ctx context.Context) error {
		v, err := t.View(ctx)
		if err != nil {
			return err
		}
		member := slices.ContainsFunc(v.Members, func(m api.MemberView) bool { return m.Name == name })
		n, err := t.present(name)
		switch {
		case member && err == nil:
			return nil // it was never removed
		case member:
			return errors.Join(errors.New("an earlier attempt was not completed"),
				t.askLeader(ctx, controlLimit, func(ctx context.Context, cl *api.Client) error {
					_, err := api.Remove.Ask(ctx, cl, api.MemberRequest{Name: name})
					return err
				}))
		case err == nil:
			t.forget(n)
		}
		return t.addAnew(ctx, name, role)
	})
}

func (t *trireme) addAnew(ctx context.Context, name, role string) error {
	if err := emptyDir(filepath.Join(t.dir, name)); err != nil {
		return err
	}
	n, err := t.Add(ctx, name, role)
	if err != nil {
		return err
	}
	if t.kept {
		t.keep(n)
	}
	if role == config.RoleLogger {
		return nil
	}
	t.dbs[name], err = t.Direct(n).Open("")
	return err
}

// emptyDir removes what is in a directory, and leaves the directory: it may be a disk.
func emptyDir(dir string) error {
	list, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	var errs []error
	for _, e := range list {
		errs = append(errs, os.RemoveAll(filepath.Join(dir, e.Name())))
	}
	return errors.Join(errs...)
}

// Testify keeps every node's view of the cluster and its history, why it does not lead, its logs, and its raft log.
func (t *trireme) Testify(ctx context.Context, dir string) error {
	var errs []error
	for _, n := range t.Nodes() {
		cl := t.Client(n)
		for what, ask := range map[string]func(context.Context) (any, error){
			"cluster": func(ctx context.Context) (any, error) { return cl.Cluster(ctx) },
			"history": func(ctx context.Context) (any, error) { return cl.History(ctx) },
			"why-not": func(ctx context.Context) (any, error) { return cl.WhyNot(ctx, n.Name) },
		} {
			errs = append(errs, testimony(ctx, filepath.Join(dir, n.Name+"-"+what+".json"), ask))
		}
		cl.Close()
		errs = append(errs, copyFile(t.LogFile(n), filepath.Join(dir, n.Name+".log")),
			os.CopyFS(filepath.Join(dir, n.Name+"-raft"), os.DirFS(filepath.Join(n.Dir, "raft"))))
		if n.Role != config.RoleLogger {
			errs = append(errs, copyFile(filepath.Join(n.Dir, "mysql", "log", "mysqld.err"), filepath.Join(dir, n.Name+".err")))
		}
	}
	return errors.Join(errs...)
}

// Testify keeps the servers' logs.
func (r *rival) Testify(_ context.Context, dir string) error {
	var errs []error
	for _, h := range r.site.hosts {
		errs = append(errs, copyFile(filepath.Join(h.dir, "error.log"), filepath.Join(dir, h.name+".err")))
	}
	return errors.Join(errs...)
}

// testimony writes one answer down. That a node does not answer is one, too.
func testimony(ctx context.Context, path string, ask func(context.Context) (any, error)) error {
	ctx, cancel := context.WithTimeout(ctx, viewLimit)
	defer cancel()
	v, err := ask(ctx)
	if err != nil {
		return os.WriteFile(path, []byte(err.Error()+"\n"), 0o644)
	}
	b, err := json.MarshalIndent(v, "", "\t")
	if err != nil {
		return err
	}
	return os.WriteFile(path, b, 0o644)
}
