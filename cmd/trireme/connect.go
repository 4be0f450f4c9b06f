package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"trireme/internal/api"
	"trireme/internal/base/config"
	"trireme/internal/base/pki"
	"trireme/internal/ops/setup"
)

// remote is the flags of every verb that talks to a cluster.
type remote struct {
	API       string `placeholder:"URL" env:"TRIREME_API" help:"Node to talk to: host:port, or https://host:port; a port of 8008 may be left out. Default: the local node."`
	Cluster   string `placeholder:"NAME" env:"TRIREME_CLUSTER" help:"Whose credential in ~/.config/trireme to use when there are several."`
	TokenFile string `placeholder:"FILE" help:"File with the credential to use. Default: $TRIREME_TOKEN, then ~/.config/trireme/CLUSTER."`
	CA        string `name:"cluster-ca" placeholder:"FILE" env:"TRIREME_CA" help:"The cluster's CA (trireme cert ca --pem), for a token that comes without it."`
	AsNode    bool   `help:"Act as the node of this host, with its secrets, instead of with a credential. For root and the node's user."`
}

const (
	localAPI     = "127.0.0.1:8008"
	probeTimeout = 1500 * time.Millisecond // one try whether a node is there at all
	readTimeout  = 10 * time.Second        // a request that only reads
)

// target is the node to ask, and with what. A token is there only if the node has proven that it is one of the
// credential's cluster.
type target struct {
	base string
	cred setup.Credential
	// nil: nothing is known of the node, and all that can be done is to read over plain HTTP on this host
	trust *tls.Config

	node   pki.Identity // that has proven itself
	serial string       // of its certificate
}

func (t target) client() *api.Client { return api.NewClient(t.base, t.cred.Token, t.trust) }

// client for requests; with control, one that has a token.
func (r remote) client(ctx context.Context, control bool) (*api.Client, error) {
	t, err := r.choose(ctx, control)
	if err != nil {
		return nil, err
	}
	return t.client(), nil
}

// choose decides which node to ask, and with what: the node named; else the local one; else, where exactly one
// cluster's credential is kept, the first of its nodes that answers. A node is asked with the credential whose CA has
// signed its certificate, and not if the others disown it; if no other one answers it may be read from, without the
// token.
func (r remote) choose(ctx context.Context, control bool) (target, error) {
	if r.AsNode {
		return r.localTarget(ctx)
	}
	creds, err := r.credentials()
	if err != nil {
		return target{}, err
	}
	if control {
		creds = slices.DeleteFunc(creds, func(c setup.Credential) bool { return c.Token == "" })
		if len(creds) == 0 {
			return target{}, r.noCredential()
		}
	}
	addrs := r.addresses(creds)
	var untrusted error
	var silent silentNode
	var disowned target
	for _, addr := range addrs {
		t, err := prove(ctx, addr, creds)
		if err == nil {
			if err = t.vouched(ctx); err == nil {
				return t, nil
			}
			disowned = target{base: t.base, trust: t.trust}
			untrusted = err
			continue
		}
		switch {
		case errors.As(err, &silent):
		case !control && plainAllowed(r.API, addr):
			return target{base: "http://" + addr}, nil
		default:
			untrusted = err
		}
	}
	if !control && disowned.base != "" {
		return disowned, nil
	}
	if untrusted != nil {
		return target{}, untrusted
	}
	why := ""
	if r.API != "" && silent.error != nil {
		why = ": " + silent.Error()
	}
	return target{}, api.Errorf(api.KindUnreachable, "no node answers at %s%s", strings.Join(addrs, ", "), why).
		With("%s", r.whereToAsk())
}

// whereToAsk is the advice of one who was not answered.
func (r remote) whereToAsk() string {
	if r.API != "" {
		return "check the name and the port (that of the API: 8008), and that the daemon runs there; " +
			"any other node can answer too"
	}
	_, err := os.Stat(defaultConfigFile())
	switch {
	case err == nil:
		return "start the node of this host: `systemctl start trireme`; or name another one with --api URL or TRIREME_API"
	case errors.Is(err, fs.ErrNotExist):
		return "this host has no node: make one with `trireme init` or `trireme join`, or name a node elsewhere with " +
			"--api URL or TRIREME_API"
	}
	return "if a node is set up on this host, start it: `systemctl start trireme`; else name a node with --api URL or " +
		"TRIREME_API"
}

// silentNode is the error of a node that cannot be reached.
type silentNode struct{ error }

// prove has a node show a certificate that the CA of one of the credentials has signed. Nothing is sent before that.
func prove(ctx context.Context, addr string, creds []setup.Credential) (target, error) {
	if err := reach(ctx, addr); err != nil {
		return target{}, silentNode{err}
	}
	err := errors.New("no CA is known here")
	for _, c := range creds {
		if c.CA == "" {
			continue
		}
		var trust *tls.Config
		if trust, err = pki.ClientTLS([]byte(c.CA)); err != nil {
			return target{}, err
		}
		var cs tls.ConnectionState
		if cs, err = handshake(ctx, addr, trust); err == nil {
			return target{base: "https://" + addr, cred: c, trust: trust}.shown(cs)
		}
	}
	return target{}, api.Errorf(api.KindUnreachable, "%s has not proven that it is a node of your cluster: %v", addr, err).
		With("a token goes to such nodes only; give the cluster's CA with --token-file or --cluster-ca (on a node: trireme cert ca --pem --as-node)")
}

func handshake(ctx context.Context, addr string, trust *tls.Config) (tls.ConnectionState, error) {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	conn, err := (&tls.Dialer{Config: trust}).DialContext(ctx, "tcp", addr)
	if err != nil {
		return tls.ConnectionState{}, err
	}
	defer func() { _ = conn.Close() }()
	return conn.(*tls.Conn).ConnectionState(), nil
}

// plainAllowed: what only reads may go over plain HTTP where that was asked for, or on this host.
func plainAllowed(asked, addr string) bool {
	if scheme, _, found := strings.Cut(asked, "://"); found {
		return scheme == "http"
	}
	host, _, err := net.SplitHostPort(addr)
	return err == nil && (host == "localhost" || net.ParseIP(host).IsLoopback())
}

// localTarget is the node of this host, asked by itself: its certificate and the secret that all nodes share.
func (r remote) localTarget(ctx context.Context) (target, error) {
	n, err := config.Load(defaultConfigFile())
	if err != nil {
		return target{}, err
	}
	secrets, err := config.LoadSecrets(n.Dir)
	if err != nil {
		return target{}, err
	}
	ca, err := os.ReadFile(filepath.Join(n.TLSDir(), pki.CAFile))
	if err != nil {
		return target{}, err
	}
	addr := hostPort(cmp.Or(r.API, listensAt(n)))
	cred := setup.Credential{Cluster: n.Cluster, Token: secrets.APIToken, CA: string(ca), API: []string{n.API.Advertise}}
	t := target{base: "https://" + addr, cred: cred, trust: pki.FilesTLS(n.TLSDir())}
	if r.API == "" {
		return t, nil // this node's own daemon
	}
	cs, err := handshake(ctx, addr, t.trust)
	if err != nil {
		return target{}, api.Errorf(api.KindUnreachable, "%s does not answer as a node of this cluster: %v", addr, err)
	}
	if t, err = t.shown(cs); err == nil {
		err = t.vouched(ctx)
	}
	return t, err
}

// intent of a request: what it needs and how long it may take.
type intent uint8

const (
	reads   intent = iota // everybody may
	looks                 // it only reads, but not for everybody: it needs a token
	changes               // it may change something, which needs a token and takes longer
)

// ask makes a client, asks with it within the time that the intent allows, and closes it.
func ask[T any](r remote, e *env, what intent, f func(*api.Client, context.Context) (T, error)) (res T, err error) {
	client, err := r.client(e.ctx, what != reads)
	if err != nil {
		return res, err
	}
	defer client.Close()
	limit := readTimeout
	if what == changes {
		limit = controlTimeout
	}
	ctx, cancel := context.WithTimeout(e.ctx, limit)
	defer cancel()
	if what == changes {
		defer e.tellWaiting(ctx, client, limit)()
	}
	return f(client, ctx)
}

// have asks for a change.
func have[Req, Res any](r remote, e *env, verb api.Verb[Req, Res], req Req) (Res, error) {
	return ask(r, e, changes, func(client *api.Client, ctx context.Context) (Res, error) {
		return verb.Ask(ctx, client, req)
	})
}

// look asks for something to look at.
func look[V any](r remote, e *env, what intent, query api.Query[V]) (V, error) {
	return ask(r, e, what, func(client *api.Client, ctx context.Context) (V, error) { return query.Ask(ctx, client) })
}

// credentials that may be the right one, the best first. Those without a token only let read.
func (r remote) credentials() ([]setup.Credential, error) {
	stored, err := setup.Credentials("")
	if err != nil {
		return nil, err
	}
	stored = slices.DeleteFunc(stored, func(c setup.Credential) bool { return r.Cluster != "" && c.Cluster != r.Cluster })
	token := strings.TrimSpace(os.Getenv("TRIREME_TOKEN"))
	if r.TokenFile != "" {
		c, err := setup.LoadCredential(r.TokenFile)
		if err != nil || c.CA != "" {
			return []setup.Credential{c}, err
		}
		token = c.Token
	}
	local, err := r.knownCA()
	if err != nil {
		return nil, err
	}
	if token == "" {
		return append(stored, setup.Credential{CA: local}), nil
	}
	all := []setup.Credential{{Token: token, CA: local}}
	for _, c := range stored {
		c.Token = token
		all = append(all, c)
	}
	return all, nil
}

// knownCA is the one given, else the local node's, if this account may read it.
func (r remote) knownCA() (string, error) {
	if r.CA != "" {
		ca, err := os.ReadFile(r.CA)
		return string(ca), err
	}
	n, err := config.Load(defaultConfigFile())
	if err != nil {
		return "", nil // this host has no node
	}
	ca, err := os.ReadFile(filepath.Join(n.TLSDir(), pki.CAFile))
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
		return "", nil
	}
	return string(ca), err
}

// addresses to try, host:port.
func (r remote) addresses(creds []setup.Credential) []string {
	if r.API != "" {
		return []string{hostPort(r.API)}
	}
	addrs := []string{localNode()}
	stored := slices.DeleteFunc(slices.Clone(creds), func(c setup.Credential) bool { return len(c.API) == 0 })
	if len(stored) == 1 {
		addrs = append(addrs, stored[0].API...)
	}
	return addrs
}

// hostPort is a node's address as --api names it. The port of a bare name is that of most nodes.
func hostPort(named string) string {
	_, addr, _ := strings.Cut(api.BaseURL(named), "://")
	if _, _, err := net.SplitHostPort(addr); err != nil && !strings.Contains(named, "://") {
		return net.JoinHostPort(strings.Trim(addr, "[]"), "8008")
	}
	return addr
}

// localNode is where the node of this host listens, by its settings if they can be read.
func localNode() string {
	n, err := config.Load(defaultConfigFile())
	if err != nil {
		return localAPI
	}
	return listensAt(n)
}

// listensAt is where a node's API can be reached from its own host.
func listensAt(n config.Node) string {
	host, port, err := net.SplitHostPort(n.API.Listen)
	if err != nil {
		return localAPI
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	return net.JoinHostPort(host, port)
}

func defaultConfigFile() string {
	if path := os.Getenv("TRIREME_CONFIG"); path != "" {
		return path
	}
	return config.DefaultFile
}

// remember keeps the addresses of all nodes in the credential by which one of them was asked, so that the next command
// finds the cluster when that node is down. It is a convenience: an error of it is not reported.
func (t target) remember(view api.ClusterView) {
	var addrs []string
	for _, m := range view.Members {
		if m.Daemon.API != "" {
			addrs = append(addrs, m.Daemon.API)
		}
	}
	stored, err := setup.Credentials("")
	i := slices.IndexFunc(stored, func(c setup.Credential) bool { return c.CA == t.cred.CA && c.Cluster == view.Cluster })
	if err != nil || t.trust == nil || i < 0 || len(addrs) == 0 || slices.Equal(addrs, stored[i].API) {
		return
	}
	stored[i].API = addrs
	_, _ = stored[i].Save("")
}

// reach says why nothing answers at addr.
func reach(ctx context.Context, addr string) error {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", addr)
	if err == nil {
		_ = conn.Close()
	}
	return err
}

// noCredential says that none was found for what needs one.
func (r remote) noCredential() error {
	if r.Cluster != "" {
		known, _ := setup.Credentials("")
		var names []string
		for _, c := range known {
			names = append(names, c.Cluster)
		}
		slices.Sort(names)
		return api.Errorf(api.KindUnauthorized, "no credential of cluster %q in ~/.config/trireme (there: %s)",
			r.Cluster, cmp.Or(strings.Join(names, ", "), "none")).
			With("copy it from where `trireme init` ran, or use --token-file")
	}
	return api.Errorf(api.KindUnauthorized, "this needs the operator's credential, which is not in ~/.config/trireme").
		With("copy it from where `trireme init` ran, or use --token-file, or on a node's host --as-node")
}
