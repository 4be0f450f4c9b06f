package config

import "time"

// Void is an operator's decision about a committed transaction that no node could apply: it does nothing, on any node. In the log it is the
// same for every node, also for one that joins or comes back later.
type Void struct {
	GTID  string    `json:"gtid"`
	Index uint64    `json:"index"` // of its entry
	Entry string    `json:"entry"` // what it would have done, in words
	Error string    `json:"error"` // why it could not be applied
	At    time.Time `json:"at"`
	By    string    `json:"by"`
}
