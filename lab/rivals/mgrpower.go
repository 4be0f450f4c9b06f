package rivals

import (
	"context"
	"errors"
	"slices"
	"time"

	"trireme/internal/demo"
	"trireme/lab/faultfs"
)

// mgrOutage is how long the operator watches a group without a majority, all its servers answering, before he founds it
// again.
const mgrOutage = 5 * time.Second

// CutPower keeps the servers down besides.
func (b *brokenMGR) CutPower(hosts []string) (lost []string, err error) {
	disks := map[string]*faultfs.FS{}
	var procs []*demo.Process
	b.mu.Lock()
	for _, n := range b.members {
		if slices.Contains(hosts, n.host.name) {
			b.held[n] = true
			disks[n.host.name] = n.host.disk
			procs = append(procs, n.process())
		}
	}
	b.mu.Unlock()
	return cutPower(procs, disks)
}

// GivePower lets the servers be started again.
func (b *brokenMGR) GivePower(hosts []string) error {
	var errs []error
	for _, h := range hosts {
		n := b.member(h)
		<-n.process().Done() // keep starts nothing while it is held
		errs = append(errs, n.host.disk.PowerOn())
		b.mu.Lock()
		delete(b.held, n)
		b.mu.Unlock()
	}
	return errors.Join(errs...)
}

// rests reports whether a member must not be started yet: its host has no power, or it was the primary and the others
// are enough to choose another one.
func (b *brokenMGR) rests(n *member) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	others := 0
	for m, v := range b.views {
		if m != n && v.state == "ONLINE" && time.Since(v.at) <= mgrFresh {
			others++
		}
	}
	return b.held[n] || b.lead.Name == n.host.name && 2*others > len(b.members)
}

// refound is the operator after an outage of a majority: dba.rebootClusterFromCompleteOutage(). A group whose majority
// has died does not go on by itself.
func (b *brokenMGR) refound() {
	since := time.Now()
	for sleep(b.ctx, mgrHelp) == nil {
		switch {
		case !b.out():
			since = time.Now()
		case time.Since(since) >= mgrOutage:
			ctx, cancel := context.WithTimeout(b.ctx, recoverLimit)
			_ = b.found(ctx) // an error is seen by Settled
			cancel()
			since = time.Now()
		}
	}
}

// out reports whether all servers answer and none sees a majority ONLINE.
func (b *brokenMGR) out() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, n := range b.members {
		if v, ok := b.views[n]; !ok || time.Since(v.at) > mgrFresh || 2*v.online > len(b.members) {
			return false
		}
	}
	return !b.lead.Open
}
