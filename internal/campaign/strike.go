package campaign

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"syscall"
	"time"

	"trireme/internal/faultfs"
	"trireme/internal/lab"
	"trireme/internal/wan"
)

// controlLimit is for what is asked of the system itself: a switchover, a removal.
const controlLimit = 20 * time.Second

// errMissed: the fault could not be made at that moment, because of what the one before has left. It is not counted.
var errMissed = errors.New("missed")

// strike is a fault that was made.
type strike struct {
	fault Fault
	hosts []string
	whom  Whom // by what they were
	at    time.Time
	undo  func(context.Context) error // nil: it does not last
	err   error
}

// system is what a campaign hits.
type system struct {
	lab.Breakable
	all []string // hosts, loggers included
}

func (s system) loggers() []string {
	return slices.DeleteFunc(slices.Clone(s.all), func(h string) bool { return slices.Contains(s.Names(), h) })
}

// followers with data, in an order that begins with the picked one.
func (s system) followers(leader string, pick uint32) []string {
	return rotate(slices.DeleteFunc(s.Names(), func(h string) bool { return h == leader }), pick)
}

func rotate(list []string, pick uint32) []string {
	if len(list) == 0 {
		return nil
	}
	n := int(pick % uint32(len(list)))
	return slices.Concat(list[n:], list[:n])
}

// victims of a fault, the leader known.
func (s system) victims(f Fault, leader string) []string {
	followers := s.followers(leader, f.Pick)
	others := rotate(slices.DeleteFunc(slices.Clone(s.all), func(h string) bool { return h == leader }), f.Pick)
	switch f.Whom {
	case Leader:
		return []string{leader}
	case Majority:
		return append([]string{leader}, others[:len(s.all)/2]...)
	case All:
		return append([]string{leader}, others...)
	case Logger:
		if l := s.loggers(); len(l) > 0 {
			return rotate(l, f.Pick)[:1]
		}
	}
	if len(followers) == 0 {
		return []string{leader}
	}
	return followers[:1]
}

// role that a victim really has: without loggers the fault of one hits a follower.
func (s system) role(f Fault, hosts []string, leader string) Whom {
	switch {
	case len(hosts) != 1 || f.Kind == Bridge || f.Kind == Split:
		return f.Whom
	case hosts[0] == leader:
		return Leader
	case slices.Contains(s.Names(), hosts[0]):
		return Follower
	}
	return Logger
}

// hit makes a fault. What lasts must be undone even if it failed in part.
func (s system) hit(ctx context.Context, f Fault, leader string) *strike {
	st := &strike{fault: f, at: time.Now()}
	defer func() { st.whom = s.role(f, st.hosts, leader) }()
	switch kindOf(f.Kind).class {
	case classPartition:
		st.hosts, st.err = s.partition(st, leader)
		return st
	case classPower:
		st.hosts = s.victims(f, leader)
		st.err = s.cutPower(st)
		return st
	}
	st.hosts = s.victims(f, leader)
	switch f.Kind {
	case Delay, Loss:
		st.err = s.disturb(st)
	case DiskFull, DiskSlow, DiskError:
		st.err = s.spoil(st)
	default:
		ctx, cancel := context.WithTimeout(ctx, controlLimit)
		defer cancel()
		s.do(ctx, st)
	}
	return st
}

// faultsOfLab are those that a system knows how to make itself.
var faultsOfLab = map[Kind]lab.Fault{KillMySQL: lab.KillMySQL, KillDaemon: lab.KillDaemon, KillHost: lab.KillHost, KillGroup: lab.KillHost, StopMySQL: lab.StopMySQL, StopDaemon: lab.StopDaemon,
	StopHost: lab.StopHost, Switchover: lab.Switchover, Replace: lab.Replace, Reseed: lab.Reseed}

// do has the system make the fault on each of the hosts.
func (s system) do(ctx context.Context, st *strike) {
	f := faultsOfLab[st.fault.Kind]
	made := 0
	for _, h := range st.hosts {
		if err := s.Do(ctx, f, h); err != nil {
			st.err = fmt.Errorf("%w: %w", errMissed, err)
			continue
		}
		made++
	}
	if made > 0 && made < len(st.hosts) {
		st.err = nil // one of several was down already
	}
	if !f.Lasts() {
		return
	}
	st.undo = func(ctx context.Context) error {
		var errs []error
		for _, h := range st.hosts {
			errs = append(errs, s.Undo(ctx, f, h))
		}
		return errors.Join(errs...)
	}
}

// partition cuts links, and returns the hosts on the smaller side.
func (s system) partition(st *strike, leader string) ([]string, error) {
	f := st.fault
	side := s.victims(f, leader)
	switch f.Kind {
	case Isolate:
		return side, s.cutOff(st, side[0], wan.Both)
	case IsolateOut:
		return side, s.cutOff(st, side[0], wan.Out)
	case IsolateIn:
		return side, s.cutOff(st, side[0], wan.In)
	}
	rest := rotate(slices.DeleteFunc(slices.Clone(s.all), func(h string) bool { return h == side[0] }), f.Pick)
	if f.Kind == Bridge { // side[0] sees both halves
		half := len(rest) / 2
		return rest[:half], s.cutBetween(st, rest[:half], rest[half:])
	}
	more := (len(s.all)-1)/2 - 1 // beside the first one
	return append(side, rest[:more]...), s.cutBetween(st, append(side, rest[:more]...), rest[more:])
}

func (s system) cutOff(st *strike, host string, d wan.Direction) error {
	st.undo = func(context.Context) error { return s.restore([]string{host}, s.all) }
	return s.Network().Isolate(host, d)
}

func (s system) cutBetween(st *strike, side, other []string) error {
	st.undo = func(context.Context) error { return s.restore(side, other) }
	var errs []error
	for _, a := range side {
		for _, b := range other {
			errs = append(errs, s.Network().Cut(a, b))
		}
	}
	return errors.Join(errs...)
}

// restore links between hosts. Of two faults of the same link the end of one is that of both.
func (s system) restore(side, other []string) error {
	var errs []error
	for _, a := range side {
		for _, b := range other {
			if a != b {
				errs = append(errs, s.Network().Restore(a, b))
			}
		}
	}
	return errors.Join(errs...)
}

// How bad links and disks become: up to so much.
const (
	worstDelay = 400 * time.Millisecond
	worstLoss  = 0.3
	worstFsync = time.Second
)

// disturb makes the links of a host slow or lossy.
func (s system) disturb(st *strike) error {
	host, degree := st.hosts[0], float64(st.fault.Pick%100+1)/100
	st.undo = func(context.Context) error { return s.restore([]string{host}, s.all) }
	var errs []error
	for _, other := range s.all {
		switch {
		case other == host:
		case st.fault.Kind == Delay:
			rtt := time.Duration(degree * float64(worstDelay))
			errs = append(errs, s.Network().Slow(host, other, rtt, rtt/4))
		default:
			errs = append(errs, s.Network().Lossy(host, other, degree*worstLoss))
		}
	}
	return errors.Join(errs...)
}

func (s system) cutPower(st *strike) error {
	dark := s.Breakable.(lab.Dark) // checked before the start
	st.undo = func(context.Context) error { return dark.GivePower(st.hosts) }
	return dark.CutPower(st.hosts)
}

// spoil makes a host's disk full, slow or failing.
func (s system) spoil(st *strike) error {
	f := faultfs.Fault{Ops: faultfs.Fsync}
	switch disk := s.Disk(st.hosts[0]).(type) {
	case *faultfs.FS:
		switch st.fault.Kind {
		case DiskFull:
			f = faultfs.Full("")
		case DiskSlow:
			f.Delay = time.Duration(st.fault.Pick%100+1) * worstFsync / 100
		case DiskError:
			f.Err = syscall.EIO
		}
		st.undo = func(context.Context) error { return disk.Inject() }
		return disk.Inject(f)
	case interface {
		Fill() error
		Drain() error
	}:
		st.undo = func(context.Context) error { return disk.Drain() }
		return disk.Fill()
	}
	return fmt.Errorf("%v: %s has no disk of its own", st.fault, st.hosts[0])
}
