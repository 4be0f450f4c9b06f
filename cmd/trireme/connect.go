package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"trireme/internal/api"
	"trireme/internal/config"
	"trireme/internal/pki"
	"trireme/internal/setup"
)

// remote is the flags of every verb that talks to a cluster.
type remote struct {
	API       string `placeholder:"URL" env:"TRIREME_API" help:"Node to talk to: http(s)://host:port or host:port. Default: the local node."`
	Cluster   string `placeholder:"NAME" env:"TRIREME_CLUSTER" help:"Whose credential in ~/.config/trireme to use when there are several."`
	TokenFile string `placeholder:"FILE" help:"File with the credential to use. Default: $TRIREME_TOKEN, then ~/.config/trireme/CLUSTER."`
}

const (
	localAPI     = "127.0.0.1:8008"
	probeTimeout = 1500 * time.Millisecond // one try whether a node is there at all
	readTimeout  = 10 * time.Second        // a request that only reads
)

// client for requests; with control, one that has a token.
func (r remote) client(ctx context.Context, control bool) (*api.Client, error) {
	base, cred, err := r.choose(ctx, control)
	if err != nil {
		return nil, err
	}
	trust, err := trustOf(cred)
	if err != nil {
		return nil, err
	}
	return api.NewClient(base, cred.Token, trust), nil
}

// choose decides which node to ask, and with what; with control, that has a token.
func (r remote) choose(ctx context.Context, control bool) (base string, cred setup.Credential, err error) {
	stored, err := setup.Credentials("")
	if err != nil {
		return "", cred, err
	}
	if base, err = r.find(ctx, stored); err != nil {
		return "", cred, err
	}
	cred, err = r.credential(ctx, base, stored, control)
	return base, cred, err
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
	return f(client, ctx)
}

// find decides which node to ask: the one named; else the local one; else, where exactly one cluster's credential is kept, the
// first of its nodes that answers.
func (r remote) find(ctx context.Context, stored []setup.Credential) (string, error) {
	if r.API != "" {
		return r.API, nil
	}
	local := localNode()
	candidates := []string{local}
	if c, ok := r.only(stored); ok {
		candidates = append(candidates, c.API...)
	}
	for _, addr := range candidates {
		if answers(ctx, addr) {
			return addr, nil
		}
	}
	return "", api.Errorf(api.KindUnreachable, "no node answers at %s", strings.Join(candidates, ", ")).
		With("name one with --api URL or TRIREME_API")
}

// only is the credential to use when nothing else tells.
func (r remote) only(stored []setup.Credential) (setup.Credential, bool) {
	if r.Cluster == "" && len(stored) == 1 {
		return stored[0], true
	}
	for _, c := range stored {
		if r.Cluster != "" && c.Cluster == r.Cluster {
			return c, true
		}
	}
	return setup.Credential{}, false
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

// remember keeps the addresses of all nodes in the credential that led to one of them, so that the next command finds the cluster
// when that node is down. It is a convenience: what goes wrong is not worth a word.
func (r remote) remember(base string, view api.ClusterView) {
	stored, err := setup.Credentials("")
	if err != nil {
		return
	}
	var addrs []string
	for _, m := range view.Members {
		if m.Daemon.API != "" {
			addrs = append(addrs, m.Daemon.API)
		}
	}
	// By the address, not by the name alone: another cluster may have the same name. The local node is asked by another address than others know it by.
	cred, found := byAddress(stored, base)
	for _, addr := range addrs {
		if !found {
			cred, found = byAddress(stored, addr)
		}
	}
	if !found || cred.Cluster != view.Cluster || len(addrs) == 0 || slices.Equal(addrs, cred.API) {
		return
	}
	cred.API = addrs
	_, _ = cred.Save("")
}

func answers(ctx context.Context, addr string) bool {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return false
	}
	_ = conn.Close()
	return true
}

// credential to present. Reading needs none, so a missing one is an error only with control.
func (r remote) credential(ctx context.Context, base string, stored []setup.Credential, control bool) (setup.Credential, error) {
	if r.TokenFile != "" {
		return setup.LoadCredential(r.TokenFile)
	}
	cred, found := r.only(stored)
	if !found {
		cred, found = byAddress(stored, base)
	}
	if !found && len(stored) > 0 && r.Cluster == "" && strings.HasPrefix(api.BaseURL(base), "http://") {
		cred, found = byQuestion(ctx, stored, base)
	}
	if token := os.Getenv("TRIREME_TOKEN"); token != "" {
		cred.Token, found = strings.TrimSpace(token), true
	}
	if control && !found {
		return cred, noCredential(r.Cluster, stored)
	}
	return cred, nil
}

func noCredential(wanted string, stored []setup.Credential) error {
	var names []string
	for _, c := range stored {
		names = append(names, c.Cluster)
	}
	switch {
	case wanted != "":
		return fmt.Errorf("no credential of cluster %q in ~/.config/trireme (there: %s); copy it from where `trireme init` ran, or use --token-file",
			wanted, strings.Join(names, " "))
	case len(names) > 1:
		return usagef("credentials of several clusters are in ~/.config/trireme; choose one with --cluster: %s", strings.Join(names, " "))
	}
	return errors.New("this needs the operator's credential and there is none in ~/.config/trireme; copy it from where `trireme init` ran, or use --token-file")
}

// byAddress finds the cluster that a node's address belongs to.
func byAddress(stored []setup.Credential, base string) (setup.Credential, bool) {
	for _, c := range stored {
		for _, addr := range c.API {
			if strings.HasSuffix(api.BaseURL(base), "//"+addr) {
				return c, true
			}
		}
	}
	return setup.Credential{}, false
}

// byQuestion asks the node for its cluster's name.
func byQuestion(ctx context.Context, stored []setup.Credential, base string) (setup.Credential, bool) {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	c := api.NewClient(base, "", nil)
	defer c.Close()
	view, err := c.Cluster(ctx)
	if err != nil {
		return setup.Credential{}, false
	}
	return remote{Cluster: view.Cluster}.only(stored)
}

// trustOf is whom to believe over HTTPS: the credential's CA, else the local node's.
func trustOf(cred setup.Credential) (*tls.Config, error) {
	if cred.CA != "" {
		return pki.ClientTLS([]byte(cred.CA))
	}
	n, err := config.Load(defaultConfigFile())
	if err != nil {
		return nil, nil // nothing known: HTTPS will say so, plain HTTP needs none
	}
	ca, err := os.ReadFile(filepath.Join(n.TLSDir(), pki.CAFile))
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return pki.ClientTLS(ca)
}
