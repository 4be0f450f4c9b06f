// Package config holds the three kinds of settings of a cluster and nothing else.
//
//   - [Node] is the TOML file of one node: what differs from host to host (addresses, ports, directory, sizes).
//     It is read once, at start, and never written by the daemon.
//   - [Cluster] is what all nodes must agree on (members, ids, join tokens). It lives in the raft log as JSON; a copy
//     in the node's directory is only where a starting node looks first.
//   - [Secrets] are the passwords of Trireme's own MySQL accounts and the token its nodes use among themselves. The
//     same on all nodes, in a file of mode 0600, never in the log.
//
// [Identity] says which node a directory belongs to; it is written once, by init or join.
//
// The package does no network I/O and starts no goroutine. Every mistake in a file is reported as an [*Error] that
// names the file, the line and what to do about it.
package config
