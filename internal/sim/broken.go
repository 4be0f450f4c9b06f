package sim

// broken makes a node do what it must never do, so that tests see that the checks notice.
type broken struct {
	syncNothing bool // a sync returns, and has done nothing
}
