package api

// Orders to a delayed learner (DelayRequest.Order). Each replaces the one before, and stays in force over restarts.
const (
	OrderStopBefore = "stop-before" // apply without delay up to a transaction, and stop in front of it
	OrderStopAfter  = "stop-after"  // likewise, and stop after it
	OrderHold       = "hold"        // apply nothing more from now on; shown as OrderStopAfter
	OrderApplyNow   = "now"         // apply what is committed, without delay
	OrderResume     = "resume"      // back to the delay
)

// DelayRequest is an order to a delayed learner.
type DelayRequest struct {
	Name  string `json:"name"`
	Order string `json:"order,omitempty"` // empty: only show it
	GTID  string `json:"gtid,omitempty"`  // of OrderStopBefore and OrderStopAfter
}

// DelayResult is the node as it is with the order in force.
type DelayResult struct {
	Name string `json:"name"`
	DelayView
}

// DelayView is a delayed learner.
type DelayView struct {
	Seconds float64 `json:"seconds"` // apply_delay
	// since this node learned of the oldest commit that is not applied; 0: all are
	BehindSeconds float64 `json:"behind_seconds"`
	BehindBytes   uint64  `json:"behind_bytes"` // committed and not applied
	// Next is the GTID of the transaction that waits, empty if none does, and RemainingSeconds how long it still does;
	// 0 while it is Stopped.
	Next             string  `json:"next,omitempty"`
	RemainingSeconds float64 `json:"remaining_seconds"`
	CaughtUp         bool    `json:"caught_up"`       // all that may be applied by now is
	Order            string  `json:"order,omitempty"` // OrderStopBefore, OrderStopAfter or OrderApplyNow; empty: none
	GTID             string  `json:"gtid,omitempty"`  // of the order
	Stopped          bool    `json:"stopped"`         // all in front of the stop is applied
	// the transaction to stop in front of is in this data all the same, as a copy of another node's
	Missed bool `json:"missed,omitempty"`
}
