// Package node runs one member of a cluster: it makes the View that ha.Decide looks at, carries out the actions that
// come back, and owns every goroutine between the raft log, mysqld, the router and the API.
//
//	events (raft state, mysqld's exit, peers' status, timers) -> wake -> loop: View -> ha.Decide -> actions
//
// An action that takes time runs on a goroutine of its own; while it runs the View shows it (server state, phase), so
// that it is not started twice. mu guards what the View is made of and is never held over I/O. What mysqld is and
// serves has a lock of its own (lifecycle.Lives) and is changed with mu held: a holder of mu sees it and the rest as
// it is at one moment.
package node
