package setup

import (
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"time"

	"trireme/internal/base/config"
	"trireme/internal/base/pki"
)

// InitOptions are those of a new cluster's first node.
type InitOptions struct {
	Node config.Node // complete settings; Dir is absolute
	Role string      // config.RoleVoter when empty; the first node cannot be a learner

	// Secrets of the cluster, when the node begins with a data directory that has its accounts in it; nil: new ones.
	Secrets *config.Secrets

	// CredentialDir is where the operator's credential goes; empty: CredentialDir().
	CredentialDir string
	Throwaway     bool // Credential.Throwaway
}

// InitResult says what was made.
type InitResult struct {
	ConfigFile     string
	CredentialFile string
	Credential     Credential
	Identity       config.Identity
}

// Init makes a new cluster whose only member is this node.
func Init(opts InitOptions) (InitResult, error) {
	d, err := Begin(opts)
	if err != nil {
		return InitResult{}, err
	}
	return d.Finish("")
}

// Draft is the first node of a new cluster before its directory is complete. Finish or Undo ends it.
type Draft struct {
	opts InitOptions
	contents
	cred Credential
	dir  *directory
}

// Begin makes the directory and everything that goes into it, and writes nothing yet.
func Begin(opts InitOptions) (*Draft, error) {
	if opts.Role == "" {
		opts.Role = config.RoleVoter
	}
	if opts.Role != config.RoleVoter {
		return nil, fmt.Errorf("the first node of a cluster must hold data: its role is %q, not %q", config.RoleVoter,
			opts.Role)
	}
	n := opts.Node
	if err := n.Validate(); err != nil {
		return nil, err
	}
	id := config.Identity{Cluster: n.Cluster, ClusterID: newClusterID(), Name: n.Name, ID: 1, Role: opts.Role,
		Bootstrap: true}
	c, cred, err := newCluster(n, id)
	if err != nil {
		return nil, err
	}
	cred.Throwaway = opts.Throwaway
	if opts.Secrets != nil {
		c.secrets = *opts.Secrets
	}
	dir, err := openDirectory(n.Dir)
	if err != nil {
		return nil, err
	}
	err = cred.free(opts.CredentialDir) // after the directory: most often its own cluster's is there
	if err == nil {
		err = dir.openTo(n.MySQL.OSUser)
	}
	if err != nil {
		dir.undo()
		return nil, err
	}
	return &Draft{opts: opts, contents: c, cred: cred, dir: dir}, nil
}

// Secrets are those that the directory will hold.
func (d *Draft) Secrets() config.Secrets { return d.secrets }

// Undo removes the directory, unless data was brought into it.
func (d *Draft) Undo() { d.dir.undo() }

// Finish completes the directory. base is the GTID set that the cluster begins with (config.Cluster.Base). On an error
// nothing is left, as with Undo.
func (d *Draft) Finish(base string) (res InitResult, err error) {
	d.cluster.Base = base
	if err := d.dir.fill(d.contents); err != nil {
		d.dir.undo()
		return res, err
	}
	path, err := d.cred.Save(d.opts.CredentialDir)
	if err != nil {
		d.dir.undo()
		return res, fmt.Errorf("writing the operator's credential: %w", err)
	}
	return InitResult{ConfigFile: config.SettingsFile(d.node.Dir), CredentialFile: path, Credential: d.cred,
		Identity: d.identity}, nil
}

// newCluster makes all that is random or signed, before anything is written.
func newCluster(n config.Node, id config.Identity) (contents, Credential, error) {
	now := time.Now()
	ca, err := pki.NewCA(n.Cluster, now)
	if err != nil {
		return contents{}, Credential{}, err
	}
	bundle, err := ca.Issue(pki.NodeCert{Name: n.Name, ID: id.ID, Hosts: Hosts(n.Member(id.ID, id.Role))}, now)
	if err != nil {
		return contents{}, Credential{}, err
	}
	token, hash := pki.NewAPIToken()
	c := contents{
		node: n, ca: ca, bundle: bundle, secrets: config.NewSecrets(), identity: id,
		cluster: &config.Cluster{
			Version: 1, Name: n.Cluster, ClusterID: id.ClusterID, NextID: 2,
			Members: []config.Member{n.Member(id.ID, id.Role)}, APITokenHash: hash,
		},
	}
	if err := c.cluster.Validate(); err != nil {
		return contents{}, Credential{}, err
	}
	return c, Credential{Cluster: n.Cluster, Token: token, CA: string(ca.CertPEM()), API: []string{n.API.Advertise}}, nil
}

// Hosts are the names and addresses that a member's certificate is to hold, for TLS clients that check them.
func Hosts(m config.Member) []string {
	hosts := []string{m.Peer, m.API}
	if m.MySQLHost != "" {
		hosts = append(hosts, m.MySQLHost)
	}
	return hosts
}

// newClusterID is random and not 0. Only the low 44 bits make it into a server_uuid, so no others are used.
func newClusterID() uint64 {
	for {
		var b [8]byte
		_, _ = rand.Read(b[:]) // never fails (crypto/rand)
		if id := binary.BigEndian.Uint64(b[:]) & (1<<44 - 1); id != 0 {
			return id
		}
	}
}
