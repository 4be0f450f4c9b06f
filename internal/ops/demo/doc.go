// Package demo runs a whole cluster on one machine: `trireme demo`, and the Cluster that it, the robustness tests and
// the benchmarks share.
//
// A cluster is made by the real set-up (init, invitation, join) and its nodes are real daemons, `trireme node
// --config`, children of this process. Each runs in a session of its own, so that a Ctrl-C in the terminal reaches only
// the demo, which then ends them in order; and with a parent-death signal, so that nothing survives even a SIGKILL of
// the demo. With Detach a supervisor process takes the demo's place and goes on in the background.
//
// Ports, from a base P, ten for each node i counted from 0:
//
//	P+10i mysqld · +1 peers · +2 API · +3 router read-write · +4 router read-only · +5 router splitting
//
// With emulated hosts (Options.Hosts) every node has an address of its own instead, reached from here without a delay.
//
// Directory D: demo.json (State), one directory for each node by its name, <name>.log with the daemon's output,
// client.log with the load's own record.
package demo
