package campaign

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Kind of a fault, as named on the command line and in the state file.
type Kind string

// The kinds.
const (
	KillMySQL  Kind = "kill-mysqld"
	KillDaemon Kind = "kill-daemon"
	KillHost   Kind = "kill-host"   // daemon, guard and mysqld
	KillGroup  Kind = "kill-group"  // several hosts at once
	StopMySQL  Kind = "stop-mysqld" // SIGSTOP, then SIGCONT
	StopDaemon Kind = "stop-daemon"
	StopHost   Kind = "stop-host"
	Isolate    Kind = "isolate"     // cut off from the other hosts
	IsolateOut Kind = "isolate-out" // no other host receives from it
	IsolateIn  Kind = "isolate-in"  // it receives from no other host
	Split      Kind = "split"       // a minority is cut off from the majority
	Bridge     Kind = "bridge"      // two halves that only one host between them reaches
	Delay      Kind = "delay"
	Loss       Kind = "loss"
	Power      Kind = "power" // processes killed, and what was not flushed to the disk is gone
	Switchover Kind = "switchover"
	Replace    Kind = "replace"    // a member is removed, and added again with nothing
	Reseed     Kind = "reseed"     // a member throws its data away and copies another's
	DiskFull   Kind = "disk-full"  // nothing is free on a host's disk
	DiskSlow   Kind = "disk-slow"  // each fsync of a host takes long
	DiskError  Kind = "disk-error" // each fsync of a host fails
)

// Whom a fault hits. Who that is, is known when it comes.
type Whom string

// The roles.
const (
	Leader   Whom = "leader"
	Follower Whom = "follower"
	Logger   Whom = "logger"   // a node without mysqld; a follower if there is no such node
	Majority Whom = "majority" // with the leader
	All      Whom = "all"
)

// class is what a figure is wanted of.
type class string

const (
	classKill      class = "kills"
	classPartition class = "partitions"
	classPower     class = "power losses"
	classOther     class = ""
)

// kind is what a schedule has to know of one.
type kind struct {
	name  Kind
	class class
	means string
	whom  []Whom           // one of these, each as likely as it is listed
	deck  int              // times in a hundred or so faults
	hold  [2]time.Duration // how long it lasts: between these; zero: it is over at once
	heavy bool             // a majority must be healthy before the next fault
	whole bool             // it can be made only where the other nodes are healthy: a step of it begins so
	needs need
	// how long writes may stop while a majority is whole: where the leader is hit, and where others are
	stall [2]time.Duration
}

// limit is how long writes may stop for a fault of this kind while a majority is whole.
func (k kind) limit(w Whom) time.Duration {
	if w == Follower || w == Logger {
		return k.stall[1]
	}
	return k.stall[0]
}

// need is what a system must have for a fault.
type need int

const (
	needsNothing need = iota
	needsNetwork      // emulated hosts
	needsDisks        // disks whose power can be cut, and that fail on command
)

const (
	blink  = 100 * time.Millisecond
	second = time.Second
)

// kinds in the order in which they are shown.
var kinds = []kind{
	{name: KillMySQL, class: classKill, means: "SIGKILL to a mysqld", whom: []Whom{Leader, Leader, Leader, Leader, Leader,
		Leader, Follower}, deck: 32, stall: [2]time.Duration{10 * second, 5 * second}},
	{name: KillDaemon, class: classKill, means: "SIGKILL to a daemon, and so to its mysqld",
		whom: []Whom{Leader, Leader, Leader, Leader, Leader, Follower, Logger}, deck: 14,
		stall: [2]time.Duration{10 * second, 5 * second}},
	{name: KillHost, class: classKill, means: "SIGKILL to everything on a host", whom: []Whom{Leader, Leader, Leader,
		Leader, Leader, Follower, Logger}, deck: 10, stall: [2]time.Duration{10 * second, 5 * second}},
	{name: KillGroup, class: classKill, means: "SIGKILL to everything on several hosts at once",
		whom: []Whom{Majority, All}, deck: 2, heavy: true, stall: [2]time.Duration{10 * second, 10 * second}},
	{name: StopMySQL, means: "SIGSTOP to a mysqld, later SIGCONT", whom: []Whom{Leader, Follower}, deck: 1,
		hold: [2]time.Duration{blink, 8 * second}, stall: [2]time.Duration{10 * second, 5 * second}},
	{name: StopDaemon, means: "SIGSTOP to a daemon, later SIGCONT", whom: []Whom{Leader, Leader, Follower}, deck: 2,
		hold: [2]time.Duration{blink, 3 * second}, stall: [2]time.Duration{10 * second, 5 * second}},
	{name: StopHost, means: "SIGSTOP to everything on a host, later SIGCONT", whom: []Whom{Leader, Leader, Follower,
		Majority, All}, deck: 2, hold: [2]time.Duration{blink, 3 * second}, stall: [2]time.Duration{10 * second, 5 * second}},
	{name: Isolate, class: classPartition, means: "a host is cut off from the others, in both directions",
		whom: []Whom{Leader, Leader, Leader, Follower}, deck: 5, hold: [2]time.Duration{blink, 3 * second},
		needs: needsNetwork, stall: [2]time.Duration{10 * second, 5 * second}},
	{name: IsolateOut, class: classPartition, means: "nothing that a host sends reaches the others",
		whom: []Whom{Leader, Leader, Leader, Follower}, deck: 4, hold: [2]time.Duration{blink, 3 * second},
		needs: needsNetwork, stall: [2]time.Duration{10 * second, 5 * second}},
	{name: IsolateIn, class: classPartition, means: "nothing reaches a host from the others",
		whom: []Whom{Leader, Leader, Leader, Follower}, deck: 4, hold: [2]time.Duration{blink, 3 * second},
		needs: needsNetwork, stall: [2]time.Duration{10 * second, 5 * second}},
	{name: Split, class: classPartition,
		means: "a minority is cut off from the majority; the leader is in the one or in the other",
		whom:  []Whom{Leader, Follower}, deck: 2, hold: [2]time.Duration{second, 3 * second}, needs: needsNetwork,
		stall: [2]time.Duration{10 * second, 10 * second}},
	{name: Bridge, class: classPartition,
		means: "two halves do not see each other, one host sees both; the leader is that one or is not",
		whom:  []Whom{Leader, Follower}, deck: 2, hold: [2]time.Duration{second, 3 * second}, needs: needsNetwork,
		stall: [2]time.Duration{10 * second, 10 * second}},
	{name: Delay, means: "the links of a host become slow, with jitter", whom: []Whom{Leader, Follower}, deck: 2,
		hold: [2]time.Duration{second, 3 * second}, needs: needsNetwork, stall: [2]time.Duration{10 * second, 5 * second}},
	{name: Loss, means: "the links of a host lose packets", whom: []Whom{Leader, Follower}, deck: 2,
		hold: [2]time.Duration{second, 3 * second}, needs: needsNetwork, stall: [2]time.Duration{15 * second, 5 * second}},
	{name: Power, class: classPower,
		means: "hosts lose power: everything is killed, and what was not flushed to their disks is gone",
		whom:  []Whom{Leader, Leader, Follower, Majority, Majority, All, All}, deck: 8, hold: [2]time.Duration{blink, second},
		heavy: true, needs: needsDisks, stall: [2]time.Duration{10 * second, 5 * second}},
	{name: Switchover, means: "leadership is moved as planned", whom: []Whom{Leader}, deck: 3, whole: true,
		stall: [2]time.Duration{5 * second, 5 * second}},
	{name: Replace, means: "a member is removed and added again, with nothing", whom: []Whom{Leader, Follower, Follower},
		deck: 1, hold: [2]time.Duration{blink, second}, heavy: true, whole: true,
		stall: [2]time.Duration{10 * second, 5 * second}},
	{name: Reseed, means: "a follower throws its data away and copies another's", whom: []Whom{Follower}, deck: 1,
		heavy: true, whole: true, stall: [2]time.Duration{5 * second, 5 * second}},
	{name: DiskFull, means: "nothing is free on a host's disk", whom: []Whom{Leader, Leader, Follower}, deck: 1,
		hold: [2]time.Duration{second, 3 * second}, heavy: true, needs: needsDisks,
		stall: [2]time.Duration{15 * second, 5 * second}},
	{name: DiskSlow, means: "each fsync of a host takes up to 1 s longer", whom: []Whom{Leader, Leader, Follower}, deck: 1,
		hold: [2]time.Duration{second, 8 * second}, needs: needsDisks, stall: [2]time.Duration{10 * second, 5 * second}},
	{name: DiskError, means: "each fsync of a host fails", whom: []Whom{Leader, Leader, Follower}, deck: 1,
		hold: [2]time.Duration{second, 3 * second}, heavy: true, needs: needsDisks,
		stall: [2]time.Duration{10 * second, 5 * second}},
}

func kindOf(name Kind) kind {
	for _, k := range kinds {
		if k.name == name {
			return k
		}
	}
	panic("campaign: no kind " + string(name))
}

// Kinds looks names up; none means all.
func Kinds(names []string) ([]Kind, error) {
	var known []string
	for _, k := range kinds {
		known = append(known, string(k.name))
	}
	var out []Kind
	for _, name := range names {
		if !slices.Contains(known, name) {
			return nil, fmt.Errorf("no fault %q; there are: %s", name, strings.Join(known, ", "))
		}
		if slices.Contains(out, Kind(name)) {
			return nil, fmt.Errorf("fault %q is named twice", name)
		}
		out = append(out, Kind(name))
	}
	if len(out) == 0 {
		for _, k := range kinds {
			out = append(out, k.name)
		}
	}
	return out, nil
}
