// Package controlloop decides, again and again, what a member does next, and begins it.
//
//	Turn: Look ──► ha.Decide ──► act ──► a task: start, judge, seed, promote, fence, hand over
//	       ▲                               │
//	       └── status, soft state, gossip ◄┘ the task changes them and wakes the loop
//
// It owns what raft says of the member (Soft), and what follows when mysqld starts, is judged, opens writes, stops
// serving or dies. What each of these does is lifecycle's, and what moves leadership is package leadership's.
//
// The simulation of whole nodes (lab/sim) runs this package as it ships.
package controlloop
