package main

import (
	"cmp"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"trireme/internal/api"
	"trireme/internal/base/config"
	"trireme/internal/base/pki"
	"trireme/internal/ops/cli"
)

// certCmd is `trireme cert`. Show and renew work on the files of this host's node, whose daemon need not run; the
// others ask the cluster.
type certCmd struct {
	Show     certShowCmd     `cmd:"" help:"Show what this node's certificate names and how long it is valid."`
	Renew    certRenewCmd    `cmd:"" help:"Sign a new key and certificate for this node now; its daemon uses them from its next start on."`
	Revoke   certRevokeCmd   `cmd:"" help:"Revoke a certificate, or all certificates of a node; their connections end."`
	Revoked  certRevokedCmd  `cmd:"" help:"List the certificates that are revoked."`
	Password certPasswordCmd `cmd:"" name:"new-password" help:"Replace the password of trireme_clone, by which nodes copy each other's data."`
	NewCA    certNewCACmd    `cmd:"" name:"new-ca" help:"Change the cluster's CA: make a new one that all nodes also trust; then, with --finish, switch to it."`
	CA       certCACmd       `cmd:"" name:"ca" help:"Show how far a change of the CA is, or print what routers and other clients should trust."`
}

// certFiles are the flags of both verbs.
type certFiles struct {
	Config string `placeholder:"FILE" help:"Settings of this node. Default: $$TRIREME_CONFIG, then /etc/trireme/trireme.toml."`
	JSON   bool   `help:"Print it as JSON."`
}

// certView is what --json prints.
type certView struct {
	Node    string    `json:"node"`
	Cluster string    `json:"cluster"`
	File    string    `json:"file"`
	Serial  string    `json:"serial"`
	Hosts   []string  `json:"hosts"`
	From    time.Time `json:"from"`
	Until   time.Time `json:"until"`
	CAUntil time.Time `json:"ca_until"`
	CA      string    `json:"ca_sha256"`
}

// load reads the settings and the certificate that they lead to.
func (c certFiles) load() (config.Node, *pki.Bundle, error) {
	path := cmp.Or(c.Config, defaultConfigFile())
	n, err := config.Load(path)
	if err != nil {
		return n, nil, err
	}
	b, err := pki.LoadBundle(n.TLSDir())
	return n, b, err
}

// show prints what is in the files now.
func (c certFiles) show(e *env, n config.Node, b *pki.Bundle) error {
	v := certView{Node: b.Identity().Name, Cluster: b.Identity().Cluster,
		File: filepath.Join(n.TLSDir(), pki.NodeCertFile), CA: b.CADigest()}
	own, err := readCertificate(v.File)
	if err != nil {
		return err
	}
	ca, err := readCertificate(filepath.Join(n.TLSDir(), pki.CAFile))
	if err != nil {
		return err
	}
	v.Serial, v.From, v.Until, v.CAUntil = pki.SerialOf(own), own.NotBefore.UTC(), own.NotAfter.UTC(), ca.NotAfter.UTC()
	v.Hosts = append([]string{}, own.DNSNames...)
	for _, ip := range own.IPAddresses {
		v.Hosts = append(v.Hosts, ip.String())
	}
	if c.JSON {
		return printJSON(e.out, v)
	}
	until := v.Until.Format(time.DateOnly)
	if b.Due(time.Now()) {
		until = e.odd(until + ": due, the daemon renews it")
	}
	cli.PrintTable(e.out, [][]string{
		{"node", v.Node + " of cluster " + v.Cluster}, {"file", v.File}, {"serial", v.Serial}, {"names", fmt.Sprint(v.Hosts)},
		{"from", v.From.Format(time.DateOnly)}, {"until", until}, {"CA until", v.CAUntil.Format(time.DateOnly)},
		{"CA SHA-256", v.CA}})
	return nil
}

func readCertificate(path string) (*x509.Certificate, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(text)
	if block == nil {
		return nil, fmt.Errorf("%s holds no certificate", path)
	}
	return x509.ParseCertificate(block.Bytes)
}

type certShowCmd struct{ certFiles }

// Run prints the certificate's dates and names.
func (c *certShowCmd) Run(e *env) error {
	n, b, err := c.load()
	if err != nil {
		return err
	}
	return c.show(e, n, b)
}

type certRenewCmd struct{ certFiles }

// Run replaces key and certificate. A daemon that runs goes on with the pair that it has read.
func (c *certRenewCmd) Run(e *env) error {
	n, b, err := c.load()
	if err != nil {
		return err
	}
	if err := ownsDir(n.TLSDir()); err != nil {
		return err
	}
	if err := b.Renew(n.TLSDir(), []string{n.Peer.Advertise, n.API.Advertise, n.MySQLHost()}, time.Now()); err != nil {
		return fmt.Errorf("nothing is changed: %w", err)
	}
	if err := pki.DropServer(n.TLSDir()); err != nil { // the daemon's next start has another one signed
		return err
	}
	if err := c.show(e, n, b); err != nil || c.JSON {
		return err
	}
	fmt.Fprintln(e.out,
		"\nRestart this node's daemon to show it to the others, one node after the other, the leader last.")
	return nil
}

// ownsDir refuses another user: the daemon could not read the files that would be made.
func ownsDir(dir string) error {
	st, err := os.Stat(dir)
	if err != nil {
		return err
	}
	if owner := st.Sys().(*syscall.Stat_t).Uid; int(owner) != os.Geteuid() {
		return fmt.Errorf(
			"%s belongs to user %d and you are %d: run this as that user, so that the daemon can read the new key", dir, owner,
			os.Geteuid())
	}
	return nil
}

type certRevokeCmd struct {
	remote
	What string `arg:"" name:"node|serial" help:"A node, or a serial number as cert show and the log tell it."`
	JSON bool   `help:"Print the result as JSON."`
}

// Run has it revoked.
func (c *certRevokeCmd) Run(e *env) error {
	res, err := have(c.remote, e, api.Revoke, api.RevokeRequest{What: c.What})
	return e.done(err, c.JSON, res, res.Message, res.Advice)
}

// done prints the result of a change, and for people the texts that explain it.
func (e *env) done(err error, asJSON bool, res any, texts ...string) error {
	switch {
	case err != nil:
		return err
	case asJSON:
		return printJSON(e.out, res)
	}
	for _, text := range texts {
		e.say("%s", text)
	}
	return nil
}

type certPasswordCmd struct {
	remote
	JSON bool `help:"Print the result as JSON."`
}

// Run has it replaced.
func (c *certPasswordCmd) Run(e *env) error {
	res, err := have(c.remote, e, api.ReplacePassword, api.ReplaceRequest{})
	return e.done(err, c.JSON, res, res.Message, res.Advice)
}

type certRevokedCmd struct {
	remote
	JSON bool `help:"Print GET /certificates/revoked as it is."`
}

// Run prints the list.
func (c *certRevokedCmd) Run(e *env) error {
	v, err := look(c.remote, e, looks, api.Revoked)
	if err != nil {
		return err
	}
	if c.JSON {
		return printJSON(e.out, v)
	}
	rows := [][]string{{"REVOKED", "WHAT"}}
	for _, r := range v.Revoked {
		what := "serial " + r.Serial
		if r.ID != 0 {
			what = fmt.Sprintf("all of node %s (id %d)", r.Name, r.ID)
		}
		rows = append(rows, []string{r.At.UTC().Format(time.RFC3339), what})
	}
	cli.PrintTable(e.out, rows)
	fmt.Fprintln(e.out, "Those of nodes that are no members any more are not trusted either.")
	return nil
}
