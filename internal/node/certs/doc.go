// Package certs is a member's part in who is trusted: the certificates of this node and of its mysqld, a change of the
// cluster's CA, revocations, the tokens of the API, the passwords of Trireme's accounts, and the record of who asked
// this node for what.
//
// What is decided is in the cluster settings (config.Cluster), which the leader changes. Each node then takes its own
// steps, and tells in its status (gossip.CAStatus) how far it is.
//
// # Whom a router may tell a password
//
// Each node gives its mysqld a certificate of the cluster's CA (pki.Server), which has another URI and another key than
// the node's. The node's status carries the SHA-256 of the certificate that mysqld shows, as seen through mysqld's
// socket, and of its RSA key for passwords. Statuses arrive over verified links, GET /route from verified nodes. So
// routers compare the whole certificate and need neither CA nor host names: an operator's own certificate works as
// well, and the CA's key is not enough to pose as a member's mysqld.
//
// A renewal is announced for as long as any view may be used (announce) before ALTER INSTANCE RELOAD TLS. Before a
// node's first look at its certificate, routers accept none. A member whose daemon is too old to announce one is not
// verified. CLONE knows CAs only: it verifies with the cluster's CA if the donor has announced that its certificate is
// signed by it.
package certs
