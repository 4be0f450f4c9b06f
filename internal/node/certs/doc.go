// Package certs is a member's part in who is trusted: the certificates of this node and of its mysqld, a change of the
// cluster's CA, revocations, the tokens of the API, the passwords of Trireme's accounts, and the record of who asked
// this node for what.
//
// What is decided is in the cluster settings (config.Cluster), which the leader changes. Each node then takes its own
// steps, and tells in its status (gossip.CAStatus) how far it is.
package certs
