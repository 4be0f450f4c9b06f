package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"trireme/internal/api"
	"trireme/internal/config"
	"trireme/internal/demo"
)

// Dark is a Breakable whose hosts can lose power: a system that was started with Shape.Disks.
type Dark interface {
	Breakable
	// CutPower kills everything on some hosts and cuts the power of their disks, all in the same moment. Nothing starts there until GivePower.
	CutPower(hosts []string) error
	GivePower(hosts []string) error
}

// endLimit is for a process that has its SIGKILL to be gone.
const endLimit = 10 * time.Second

// CutPower: a host whose daemon is not running just then has nothing running, since mysqld dies with its daemon.
func (t *trireme) CutPower(hosts []string) error {
	var errs []error
	for _, name := range hosts {
		n, err := t.present(name)
		if err != nil {
			return err
		}
		t.Hold(n)
		if n.DaemonPID() != 0 {
			_ = t.SignalHost(n, syscall.SIGKILL) // it may have ended since
		}
	}
	for _, name := range hosts {
		errs = append(errs, t.disks[name].PowerOff())
	}
	return errors.Join(errs...)
}

func (t *trireme) GivePower(hosts []string) error {
	var errs []error
	for _, name := range hosts {
		n, err := t.present(name)
		if err != nil {
			return err
		}
		if err := waitGone(n); err != nil {
			errs = append(errs, err)
			continue
		}
		if err := t.disks[name].PowerOn(); err != nil {
			errs = append(errs, err)
			continue
		}
		t.Release(n)
	}
	return errors.Join(errs...)
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

// present is a member's node; one that was removed and is not back yet is an error.
func (t *trireme) present(name string) (*demo.Node, error) {
	for _, n := range t.Nodes() {
		if n.Name == name {
			return n, nil
		}
	}
	return nil, fmt.Errorf("%s is not a member now", name)
}

// askLeader has the leader do something, within a limit.
func (t *trireme) askLeader(ctx context.Context, limit time.Duration, f func(context.Context, *api.Client) error) error {
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
		_, err := cl.Reinit(ctx, api.MemberRequest{Name: name})
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
		_, err := cl.Remove(ctx, api.MemberRequest{Name: name})
		return err
	})
	if err == nil {
		t.forget(n)
	}
	return err
}

// forget ends what runs for a member that is none any more.
func (t *trireme) forget(n *demo.Node) {
	t.Forget(n)
	if db := t.dbs[n.Name]; db != nil {
		db.Close()
		delete(t.dbs, n.Name)
	}
}

// bringBack adds a removed member anew on its host, with an empty directory. Whether the removal was done, or an earlier attempt to add it, is looked up:
// answers may have been lost.
func (t *trireme) bringBack(ctx context.Context, name, role string) error {
	return poll(ctx, recoverLimit, name+" to be added anew", func(ctx context.Context) error {
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
			return errors.Join(errors.New("an earlier attempt was not completed"), t.askLeader(ctx, controlLimit, func(ctx context.Context, cl *api.Client) error {
				_, err := cl.Remove(ctx, api.MemberRequest{Name: name})
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
		t.Keep(n, restart, nil)
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
