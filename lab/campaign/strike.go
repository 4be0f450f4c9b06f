package campaign

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"syscall"
	"time"

	"trireme/lab/faultfs"
	"trireme/lab/rivals"
	"trireme/lab/wan"
)

// controlLimit is for what is asked of the system itself: a switchover, a removal.
const controlLimit = 20 * time.Second

// errMissed: the fault could not be made at that moment, because of what the one before has left. It is not counted.
var errMissed = errors.New("missed")

// strike is a fault that was made.
type strike struct {
	fault Fault
	hosts []string    // that were hit
	whom  Whom        // by what they were
	lead  rivals.Lead // as far as was known then
	lost  []string    // power losses: hosts whose disks dropped something
	at    time.Time
	ended time.Time                   // when it was undone; zero: it was over at once
	undo  func(context.Context) error // nil: it does not last
	err   error
}

// system is what a campaign hits.
type system struct {
	rivals.Breakable
	all      []string // hosts, loggers and learners included
	learners []string
	stream   func() string // the address of a change stream, for each connection; nil: no change stream
	grips    *grips
	witness  rivals.Witness // nil: nothing records the cause
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
		others = slices.DeleteFunc(others, func(h string) bool { return slices.Contains(s.learners, h) })
		return append([]string{leader}, others[:len(s.voters())/2]...)
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
func (s system) hit(ctx context.Context, f Fault, lead rivals.Lead) *strike {
	st, leader := &strike{fault: f, lead: lead, at: time.Now()}, lead.Name
	switch kindOf(f.Kind).class {
	case classPartition:
		st.hosts, st.err = s.partition(st, leader)
		st.at = time.Now()
		st.whom = s.role(f, st.hosts, leader)
		return st
	}
	st.hosts = s.victims(f, leader)
	st.whom = s.role(f, st.hosts, leader)
	switch f.Kind {
	case Power:
		st.err = s.cutPower(st)
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
var faultsOfLab = map[Kind]rivals.Fault{KillMySQL: rivals.KillMySQL, KillDaemon: rivals.KillDaemon,
	KillHost: rivals.KillHost, KillGroup: rivals.KillHost, StopMySQL: rivals.StopMySQL, StopDaemon: rivals.StopDaemon,
	StopHost: rivals.StopHost, Switchover: rivals.Switchover, Replace: rivals.Replace, Reseed: rivals.Reseed}

// do has the system make the fault on each of the hosts. One where it could not be made, because what it hits was dead
// already, is not one of them any more.
func (s system) do(ctx context.Context, st *strike) {
	f := faultsOfLab[st.fault.Kind]
	var made []string
	var errs []error
	for _, h := range st.hosts {
		if err := s.Do(ctx, f, h); err != nil {
			errs = append(errs, err)
			continue
		}
		made = append(made, h)
	}
	switch {
	case len(made) == 0:
		st.err = fmt.Errorf("%w: %w", errMissed, errors.Join(errs...))
	case f != rivals.Replace:
		st.hosts = made
	}
	switch {
	case f == rivals.Replace: // its answer may have been lost
		st.undo = func(ctx context.Context) error { return s.Undo(ctx, f, st.hosts[0]) }
	case f.Lasts():
		for _, h := range made {
			s.grips.freeze(h)
		}
		st.undo = func(ctx context.Context) error {
			var errs []error
			for _, h := range made {
				if s.grips.thaw(h) {
					errs = append(errs, s.Undo(ctx, f, h))
				}
			}
			return errors.Join(errs...)
		}
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
	more := (len(s.all)-1)/2 - 1 // in addition to the first one
	return append(side, rest[:more]...), s.cutBetween(st, append(side, rest[:more]...), rest[more:])
}

func (s system) cutOff(st *strike, host string, d wan.Direction) error {
	s.hold(st, []string{host}, s.all)
	return s.Network().Isolate(host, d)
}

func (s system) cutBetween(st *strike, side, other []string) error {
	s.hold(st, side, other)
	var errs []error
	for _, a := range side {
		for _, b := range other {
			errs = append(errs, s.Network().Cut(a, b))
		}
	}
	return errors.Join(errs...)
}

// hold links between hosts until the strike is undone, and longer where another one holds them too.
func (s system) hold(st *strike, side, other []string) {
	var links [][2]string
	for _, a := range side {
		for _, b := range other {
			if a != b {
				links = append(links, link(a, b))
			}
		}
	}
	s.grips.take(links)
	st.undo = func(context.Context) error {
		var errs []error
		for _, l := range s.grips.drop(links) {
			errs = append(errs, s.Network().Restore(l[0], l[1]))
		}
		return errors.Join(errs...)
	}
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
	s.hold(st, []string{host}, s.all)
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

func (s system) cutPower(st *strike) (err error) {
	dark := s.Breakable.(rivals.Dark) // checked before the start
	st.undo = func(context.Context) error { return dark.GivePower(st.hosts) }
	st.lost, err = dark.CutPower(st.hosts)
	if errors.Is(err, rivals.ErrAbsent) {
		st.undo, err = nil, fmt.Errorf("%w: %w", errMissed, err)
	}
	return err
}

// spoil makes a host's disk full, slow or failing.
func (s system) spoil(st *strike) error {
	host, f := st.hosts[0], faultfs.Fault{Ops: faultfs.Fsync}
	disk := s.Disk(host)
	if disk == nil {
		return fmt.Errorf("%v: %s has no disk of its own", st.fault, host)
	}
	switch st.fault.Kind {
	case DiskFull:
		f = faultfs.Full("")
	case DiskSlow:
		f.Delay = time.Duration(st.fault.Pick%100+1) * worstFsync / 100
	case DiskError:
		f.Err = syscall.EIO
	}
	st.undo = func(context.Context) error { return disk.Inject(s.grips.mend(host, f)...) }
	return disk.Inject(s.grips.spoil(host, f)...)
}
