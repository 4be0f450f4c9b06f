package config

import "time"

// Void is an operator's decision about a committed transaction that no node could apply: it does nothing, or is applied
// tolerantly, on each node. In the log it is the same for every node, also for one that joins or comes back later.
type Void struct {
	GTID  string    `json:"gtid"`
	Index uint64    `json:"index"` // of its entry
	Entry string    `json:"entry"` // what it would have done, in words
	Error string    `json:"error"` // why it could not be applied
	At    time.Time `json:"at"`
	By    string    `json:"by"`
	// Tolerant: it is applied without foreign key checks, in the mode IDEMPOTENT. A later decision that it does nothing
	// wins.
	Tolerant bool `json:"tolerant,omitempty"`

	kept
}

// The formats of the settings from which on a node knows of Voids, and of tolerant ones. One that did not would apply
// what others leave out, or the other way round.
const (
	voidFormat     = 2
	tolerantFormat = 3
)

// DeclareVoid adds one.
func (c *Cluster) DeclareVoid(v Void) {
	needs := uint64(voidFormat)
	if v.Tolerant {
		needs = tolerantFormat
	}
	c.Voids, c.Needs = append(c.Voids, v), max(c.Needs, needs)
}

// Mark is how node.json and archives name the decision: the GTID, and for a tolerant one TolerantMark after it.
func (v Void) Mark() string {
	if v.Tolerant {
		return v.GTID + TolerantMark
	}
	return v.GTID
}

// TolerantMark ends the Mark of a tolerant decision.
const TolerantMark = " tolerant"

// MarshalJSON implements json.Marshaler.
func (v Void) MarshalJSON() ([]byte, error) {
	type plain Void
	return encodeKept(plain(v), v.kept)
}

// UnmarshalJSON implements json.Unmarshaler.
func (v *Void) UnmarshalJSON(b []byte) (err error) {
	type plain Void
	v.kept, err = decodeKept(b, (*plain)(v))
	return err
}
