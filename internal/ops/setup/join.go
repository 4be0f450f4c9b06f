package setup

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"trireme/internal/api"
	"trireme/internal/base/config"
	"trireme/internal/base/pki"
)

// joinTimeout is for the one request to the cluster; adding a member waits for a majority.
const joinTimeout = 60 * time.Second

// JoinOptions are those of a node that joins a running cluster.
type JoinOptions struct {
	Token string      // from `trireme add`
	Node  config.Node // complete settings but for Cluster, which the cluster itself tells; Dir is absolute
	Role  string      // config.RoleVoter when empty; must be that of the token

	// Executed is gtid_executed of data that the node brings; nil: it brings none. Bring puts it into the node's
	// directory, once the cluster has accepted it and before identity.json makes the directory a node's.
	Executed *string
	Bring    func(config.Secrets) error

	// Listen opens a port of the node for as long as joining takes; nil: net.Listen.
	Listen func(network, addr string) (net.Listener, error)
}

// JoinResult says what was made.
type JoinResult struct {
	ConfigFile string
	Identity   config.Identity
	Members    []string // names of all members, this one included
}

// Join makes the cluster accept this node and makes its directory. The daemon is then started with `trireme node`.
//
// Everything that can be checked or made without the cluster is, before it is asked, because once it has accepted the
// node the token is used up.
func Join(ctx context.Context, opts JoinOptions) (res JoinResult, err error) {
	if opts.Role == "" {
		opts.Role = config.RoleVoter
	}
	token, err := pki.ParseJoinToken(opts.Token)
	if err != nil {
		return res, fmt.Errorf("%w; copy it whole from what `trireme add` printed", err)
	}
	n := opts.Node
	named := n.Cluster != ""
	if !named {
		n.Cluster = "unknown" // until the cluster says it
	}
	if err := n.Validate(); err != nil {
		return res, err
	}
	key, csr, err := pki.NewKey(n.Name)
	if err != nil {
		return res, err
	}
	dir, err := openDirectory(n.Dir)
	if err != nil {
		return res, err
	}
	defer func() {
		if err != nil {
			dir.undo()
		}
	}()
	if err := dir.openTo(n.MySQL.OSUser); err != nil {
		return res, err
	}
	open, err := openPorts(n, opts.Role != config.RoleLogger && opts.Executed == nil, opts.Listen)
	if err != nil {
		return res, err
	}
	answer, err := ask(ctx, token, api.JoinRequest{Token: opts.Token, CSR: csr, Member: n.Member(0, opts.Role),
		Executed: opts.Executed, Proof: open.word})
	open.close()
	if err != nil {
		return res, err
	}
	if named && answer.Cluster.Name != n.Cluster {
		return res, fmt.Errorf("the token is for cluster %q, not %q", answer.Cluster.Name, n.Cluster)
	}
	n.Cluster = answer.Cluster.Name
	c, err := joined(n, token, key, answer)
	if err == nil && opts.Bring != nil {
		err = opts.Bring(c.secrets)
	}
	if err == nil {
		err = dir.fill(c)
	}
	if err != nil {
		return res, fmt.Errorf("cluster %q has accepted node %q with id %d, but its directory could not be made: %w",
			n.Cluster, n.Name, answer.ID, err)
	}
	return JoinResult{ConfigFile: config.SettingsFile(n.Dir), Identity: c.identity, Members: c.cluster.Names()}, nil
}

// ask sends the request to the node that the token names, over TLS pinned to the token's CA.
func ask(ctx context.Context, token pki.JoinToken, req api.JoinRequest) (api.JoinResult, error) {
	ctx, cancel := context.WithTimeout(ctx, joinTimeout)
	defer cancel()
	client := api.NewClient("https://"+token.Address, "", pki.JoinTLS(token.CADigest))
	defer client.Close()
	answer, err := api.Join.Ask(ctx, client, req)
	if api.KindOf(err) == api.KindUnreachable { // the answer may be lost, and the token is good for this key alone now
		answer, err = api.Join.Ask(ctx, client, req)
	}
	if err != nil {
		return answer, err
	}
	if answer.Cluster == nil || answer.ID == 0 {
		return answer, errors.New("the cluster's answer is incomplete; are all nodes of the same version?")
	}
	return answer, nil
}

// joined checks that all parts of the answer belong together and to the token.
func joined(n config.Node, token pki.JoinToken, key []byte, answer api.JoinResult) (contents, error) {
	if err := answer.Cluster.Validate(); err != nil {
		return contents{}, err
	}
	if err := answer.Secrets.Validate(); err != nil {
		return contents{}, err
	}
	m, found := answer.Cluster.MemberByID(answer.ID)
	if !found || m.Name != n.Name {
		return contents{}, fmt.Errorf("the cluster's settings do not have node %q with id %d", n.Name, answer.ID)
	}
	ca, err := pki.ParseCA(answer.CA, answer.CAKey)
	if err != nil {
		return contents{}, err
	}
	if ca.Digest() != token.CADigest {
		return contents{}, errors.New("the cluster sent another CA than the token names")
	}
	bundle, err := pki.NewBundle(answer.CA, answer.Cert, key)
	if err != nil {
		return contents{}, err
	}
	if id := bundle.Identity(); id.Cluster != n.Cluster || id.ID != answer.ID {
		return contents{}, fmt.Errorf("the certificate is for node %d of cluster %q", id.ID, id.Cluster)
	}
	return contents{
		node: n, ca: ca, bundle: bundle, secrets: answer.Secrets, cluster: answer.Cluster,
		identity: config.Identity{Cluster: n.Cluster, ClusterID: answer.Cluster.ClusterID, Name: n.Name, ID: answer.ID,
			Role: m.Role},
	}, nil
}
