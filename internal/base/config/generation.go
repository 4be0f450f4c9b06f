package config

import "time"

// Generation is one generation of a cluster after the first: what an operator made with `trireme force-quorum` from the
// survivors of a lost majority. It is part of every hello of their daemons (transport.Generation), so that a node that
// was given up learns of it from any of them. Immutable.
type Generation struct {
	Number uint64 `json:"number"` // 2 or more
	ID     uint64 `json:"id"`     // random: two operators may make one of the same number
	Parent uint64 `json:"parent"` // ID of the generation before, 0 if that is the first
	// Source is the raft id of the survivor whose log, up to Base, is what the cluster goes on with.
	Source   uint64 `json:"source"`
	Base     uint64 `json:"base"`      // last index of its log
	BaseTerm uint64 `json:"base_term"` // term of the entry at Base
	// what was committed for certain: every node of the generation before has the same up to here
	Commit uint64 `json:"commit"`
	// Members are the raft ids of those that go on, if their logs end at or before Base.
	Members []uint64  `json:"members"`
	At      time.Time `json:"at"`
	By      string    `json:"by"` // who said so

	kept
}

// NumberOf is the number of a generation; nil is the first.
func (g *Generation) NumberOf() uint64 {
	if g == nil {
		return 1
	}
	return g.Number
}

// IDOf is the id of a generation; nil is the first.
func (g *Generation) IDOf() uint64 {
	if g == nil {
		return 0
	}
	return g.ID
}
