package main

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"trireme/internal/access/vip"
	"trireme/internal/base/config"
	"trireme/internal/ops/cli"
)

// vipCmd is `trireme vip`.
type vipCmd struct {
	Check   vipCheckCmd   `cmd:"" help:"Say what would keep this host from holding the virtual addresses; changes nothing."`
	Release vipReleaseCmd `cmd:"" help:"Remove the virtual addresses from this host: for when the daemon has ended. The node that should have them binds them again."`
}

// vipFile is where the addresses are looked up.
type vipFile struct {
	Config string `type:"path" placeholder:"FILE" help:"Settings of this node. Default: $$TRIREME_CONFIG, then /etc/trireme/trireme.toml."`
}

// addresses of the settings file.
func (c *vipFile) addresses() (config.Node, []netip.Prefix, error) {
	path := cmp.Or(c.Config, defaultConfigFile())
	n, err := config.Load(path)
	if err != nil {
		return n, nil, err
	}
	rw, ro, err := n.VIP.Addresses()
	if err == nil && len(rw)+len(ro) == 0 {
		err = fmt.Errorf("%w in %s; give vip.rw or vip.ro (docs/vip.md)", errNoAddresses, path)
	}
	return n, slices.Concat(rw, ro), err
}

// errNoAddresses: there is nothing to check.
var errNoAddresses = errors.New("no virtual addresses")

type vipCheckCmd struct {
	vipFile
	JSON bool `name:"json" help:"Print JSON."`
}

// Run fails if one check does.
func (c *vipCheckCmd) Run(e *env) error {
	n, addrs, err := c.addresses()
	if err != nil {
		return err
	}
	findings := vip.Check(e.ctx, addrs, n.VIP.Interface)
	failed, rows := 0, [][]string{}
	for _, f := range findings {
		if !f.OK {
			failed++
		}
		rows = append(rows, []string{map[bool]string{true: e.good("ok"), false: e.bad("FAILED")}[f.OK], f.What, f.Outcome})
	}
	if c.JSON {
		if err := printJSON(e.out, findings); err != nil {
			return err
		}
	} else {
		cli.PrintTable(e.out, rows)
	}
	if failed > 0 {
		return cli.Silent(exitFailed)
	}
	return nil
}

type vipReleaseCmd struct{ vipFile }

// Run removes them, no matter who bound them. A service runs this whenever its daemon has ended, so having none is no
// mistake.
func (c *vipReleaseCmd) Run(*env) error {
	_, addrs, err := c.addresses()
	if errors.Is(err, errNoAddresses) {
		return nil
	}
	if err != nil {
		return err
	}
	var list []netip.Addr
	for _, p := range addrs {
		list = append(list, p.Addr())
	}
	return vip.Remove(list)
}
