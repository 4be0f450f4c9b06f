// Package setup makes the directory of a node: [Init] that of the first node of a new cluster, [Join] that of one more
// node of a running cluster. The daemon only ever reads what is made here.
//
//	DIR/                 0700
//	    trireme.toml     settings of this node, with comments; written to be edited. Of /var/lib/trireme: in /etc/trireme
//	    tls/             CA certificate and key, node certificate and key (internal/base/pki)
//	    secrets.json     passwords of Trireme's own MySQL accounts, token among nodes
//	    cluster.json     settings of the cluster as known when the directory was made
//	    identity.json    which node of which cluster this is; written last, so a directory that has it is complete
//
// [Begin] and JoinOptions.Bring are for `trireme adopt`, which puts a server's data into the directory before it is
// complete.
//
// Init also writes the operator's credential, see [Credential]. On an error nothing that was made remains.
package setup
