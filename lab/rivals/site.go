package rivals

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"trireme/internal/ops/demo"
	"trireme/lab/faultfs"
	"trireme/lab/wan"
)

// site is the hosts of one rival. Without a topology they are all this machine, and only their directories differ.
type site struct {
	lab   *Lab
	net   *wan.Net // nil without a topology
	hosts []*host
	spare []*host // nothing runs there yet
}

// host is where one server of a rival runs.
type host struct {
	name string
	addr string
	dir  string // exists

	site   *site
	disk   *faultfs.FS // nil: the directory is an ordinary one
	budget *wan.Budget // nil: no limit
}

// openSite makes n hosts n1, n2, …
func (l *Lab) openSite(ctx context.Context, s Shape, n int) (_ *site, err error) {
	out := &site{lab: l}
	defer func() {
		if err != nil {
			_ = out.close() // the first error counts
		}
	}()
	var names []string
	for i := range n + s.Spare {
		names = append(names, "n"+strconv.Itoa(i+1))
	}
	if s.Topology != nil {
		if out.net, err = wan.New(*s.Topology, names); err != nil {
			return nil, err
		}
	}
	for _, name := range names {
		h := &host{name: name, addr: "127.0.0.1", dir: filepath.Join(s.Dir, name), site: out}
		if out.net != nil {
			h.addr = out.net.Host(name).Addr.String()
		}
		out.hosts = append(out.hosts, h)
		if h.disk, err = s.newDisk(ctx, h.dir, len(out.hosts)); err == nil {
			err = os.MkdirAll(h.dir, 0o755)
		}
		if err != nil {
			return nil, err
		}
		if cpus := cmp.Or(s.CPUs, s.ServerCPUs); cpus != 0 { // nothing but mysqld runs there
			if h.budget, err = wan.NewBudget("lab-"+name, cpus); err != nil {
				return nil, err
			}
		}
	}
	out.hosts, out.spare = out.hosts[:n:n], out.hosts[n:]
	return out, nil
}

// port that a server of the host may listen to. On hosts of their own servers of one kind all have the same one.
func (h *host) port(usual int) int {
	if h.site.net != nil {
		return usual
	}
	return ports.take(1)
}

// start a program on the host: in its namespace and under its budget, with all that it starts.
func (h *host) start(c demo.Command) (*demo.Process, error) {
	if h.site.net != nil {
		c.Enter = h.site.net.Host(h.name).Enter
	}
	p, err := demo.StartProcess(c)
	if err != nil || h.budget == nil {
		return p, err
	}
	if err := h.budget.Add(p.PID); err != nil {
		p.Kill()
		return nil, fmt.Errorf("CPU budget of %s: %w", h.name, err)
	}
	return p, nil
}

// diskOf a host; nil if it has none.
func (s *site) diskOf(name string) *faultfs.FS {
	for _, h := range s.hosts {
		if h.name == name {
			return h.disk
		}
	}
	return nil
}

// close ends the emulation. Everything on the hosts must have ended.
func (s *site) close() error {
	var errs []error
	for _, h := range slices.Concat(s.hosts, s.spare) {
		if h.budget != nil {
			errs = append(errs, h.budget.Close())
		}
		if h.disk != nil {
			errs = append(errs, h.disk.Close())
		}
	}
	if s.net != nil {
		errs = append(errs, s.net.Close())
	}
	return errors.Join(errs...)
}
