package config

import "time"

// Void is an operator's decision about a committed transaction that no node could apply: it does nothing, on any
// node. In the log it is the same for every node, also for one that joins or comes back later.
type Void struct {
	GTID  string    `json:"gtid"`
	Index uint64    `json:"index"` // of its entry
	Entry string    `json:"entry"` // what it would have done, in words
	Error string    `json:"error"` // why it could not be applied
	At    time.Time `json:"at"`
	By    string    `json:"by"`

	kept
}

// voidFormat is the format of the settings from which on a node knows of Voids. One that did not would apply what
// others leave out.
const voidFormat = 2

// DeclareVoid adds one.
func (c *Cluster) DeclareVoid(v Void) {
	c.Voids, c.Needs = append(c.Voids, v), max(c.Needs, voidFormat)
}

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
