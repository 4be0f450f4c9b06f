package main

import (
	"errors"
	"fmt"

	"trireme/internal/ops/demo"
	"trireme/lab/rivals"
	"trireme/lab/wan"
)

// demoCmd is `trireme-lab demo`: `trireme demo` on emulated hosts.
type demoCmd struct {
	demo.Flags `embed:""`

	WAN  string  `name:"wan" placeholder:"NAME|FILE" help:"Put each node on an emulated host; the links: lan, city, 10ms, 30ms, two-regions, three-cities, or a file. Needs root."`
	CPUs float64 `name:"cpus" placeholder:"N" help:"CPU time of each node, daemon and mysqld together, in CPUs, such as 0.5. Needs root. Default: no limit."`
}

// Run starts or ends a demo.
func (c *demoCmd) Run(e *env) (err error) {
	o := c.Options()
	o.Out = e.progress(c.JSON)
	hosts := &wan.Hosts{Cluster: fmt.Sprintf("demo-%d", c.PortBase), CPUs: c.CPUs}
	o.Hosts = hosts
	if c.WAN != "" {
		t, err := wan.Load(c.WAN)
		if err != nil {
			return err
		}
		hosts.Topology = &t
		o.More = append(o.More, "--wan", c.WAN)
	}
	if c.CPUs != 0 {
		o.More = append(o.More, "--cpus", fmt.Sprint(c.CPUs))
	}
	if c.Action != "stop" {
		if o.Binary, err = rivals.FindTrireme(); err != nil {
			return err
		}
	}
	result, err := c.Do(e.ctx, o)
	if c.JSON && result != nil {
		err = errors.Join(err, printJSON(e.out, result))
	}
	return err
}
