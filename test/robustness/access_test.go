package robustness

import (
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"database/sql"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/go-sql-driver/mysql"

	"trireme/internal/api"
	"trireme/internal/base/config"
	"trireme/internal/base/pki"
	"trireme/internal/mysql/mysqlwire"
	"trireme/internal/ops/demo"
	"trireme/internal/ops/setup"
	"trireme/lab/testkit"
	"trireme/lab/verify"
)

// TestAccess: on a running cluster that takes writes all the time, a token with a role, a change of the CA, the
// revocation of a node's certificate by its serial, and at last of a whole node. The leader stays the leader, and
// nothing that was acknowledged is missing.
func TestAccess(t *testing.T) {
	t.Parallel()
	c := create(t, 3, 0)
	leader := c.healthy()
	others := c.others(leader)
	before := c.view()
	w := c.load(verify.Config{Writers: 2, Rate: steady()})

	token := result[api.TokenResult](c, leader, 0, "token add eyes --role viewer").Token
	for _, n := range c.Nodes() {
		cl := c.ClientWith(n, token)
		defer cl.Close()
		eventually(t, healLimit, n.Name+" takes the token",
			func() error { _, err := api.Tokens.Ask(t.Context(), cl); return err })
		if _, err := api.Switchover.Ask(t.Context(), cl, api.SwitchoverRequest{}); api.KindOf(err) != api.KindForbidden ||
			!strings.Contains(err.Error(), string(pki.Viewer)) {
			t.Errorf("%s: a viewer switches over: %v", n.Name, err)
		}
	}
	c.says(others[0], 0, "token remove eyes", "eyes")

	// Without any credential, on a node's host.
	made := filepath.Join(t.TempDir(), "made")
	cmd := exec.CommandContext(t.Context(), testkit.Program(t, testkit.Trireme), "token", "add", "again", "--role",
		"admin", "--as-node", "--file", made)
	cmd.Env = append(os.Environ(), "TRIREME_CONFIG="+config.SettingsFile(leader.Dir), "XDG_CONFIG_HOME="+t.TempDir())
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	cred, err := setup.LoadCredential(made)
	must(t, err)
	cl := c.ClientWith(others[0], cred.Token)
	defer cl.Close()
	eventually(t, healLimit, "the new token counts", func() error {
		_, err := api.Switchover.Ask(t.Context(), cl, api.SwitchoverRequest{DryRun: true})
		return err
	})
	if out, err := exec.CommandContext(t.Context(), testkit.Program(t, testkit.Trireme), "token", "list", "--token-file",
		made, "--api", cred.API[0]).CombinedOutput(); err != nil {
		t.Errorf("the file that was written: %v: %s", err, out)
	}

	first := c.caOf(leader).Signer
	certs := map[string]string{}
	for _, n := range c.Nodes() {
		certs[n.Name] = c.mysqldShows(n, first)
	}
	// Sessions over TLS, to the leader's mysqld itself and by way of a router, which verifies it: a renewal of its
	// certificate ends none.
	direct, routed := c.overTLS(leader, leader.Ports.MySQL), c.overTLS(others[0], others[0].Ports.RW)
	sessions := []string{direct.value("SELECT CONNECTION_ID()"), routed.value("SELECT CONNECTION_ID()")}
	c.says(others[0], 0, "cert new-ca")
	c.refused(leader, api.KindBusy, "cert new-ca")
	c.says(others[1], 0, "cert new-ca --finish")
	for _, n := range c.Nodes() {
		eventually(t, healLimit, n.Name+" has gone over", func() error {
			if v := c.caOf(n); v.Signer == first || len(v.Trusts) != 1 {
				return fmt.Errorf("%+v", v)
			}
			return nil
		})
	}
	for _, n := range c.Nodes() {
		if now := c.mysqldShows(n, c.caOf(n).Signer); now == certs[n.Name] {
			t.Errorf("the mysqld of %s shows the old certificate", n.Name)
		}
	}
	if now := []string{direct.value("SELECT CONNECTION_ID()"), routed.value("SELECT CONNECTION_ID()")}; !slices.Equal(now, sessions) {
		t.Errorf("sessions %v, before the change %v", now, sessions)
	}
	if again := c.overTLS(others[0], others[0].Ports.RW); again.value("SELECT @@hostname IS NOT NULL") != "1" {
		t.Error("no login through the router")
	}
	c.writesMore(w, 50)
	c.stays(before)

	shown := c.mysqldShows(others[0], "")
	c.says(leader, 0, "cert revoke "+shown, shown)
	eventually(t, healLimit, "mysqld shows another certificate", func() error {
		if c.mysqldShows(others[0], "") == shown {
			return errors.New("it is the same")
		}
		return nil
	})
	serial := c.serialOf(others[0])
	c.says(leader, 0, "cert revoke "+serial, serial)
	eventually(t, healLimit, "another certificate", func() error {
		if c.serialOf(others[0]) == serial {
			return errors.New("it is the same")
		}
		return nil
	})
	c.shows(leader, others[0].Name, "is healthy", healthyVoter)
	c.writesMore(w, 50)
	c.stays(before)
	t.Logf("%s", c.check(w))

	c.refused(leader, api.KindNeeded, "cert revoke "+leader.Name, leader.Name)
	c.says(leader, 0, "cert revoke "+others[1].Name, others[1].Name)
	eventually(t, healLimit, others[1].Name+" ends", func() error {
		if others[1].DaemonPID() != 0 {
			return errors.New("it runs")
		}
		return nil
	})
	c.exits(others[1]) // again, when it is started again
	c.stays(before)
	eventually(t, healLimit, "the node is down", func() error {
		return c.refusal(leader, api.KindNeeded, "cert revoke "+others[0].Name, others[0].Name)
	})
	c.says(leader, 0, "remove "+others[1].Name)
}

// caOf is the CA as a node sees it.
func (c *cluster) caOf(n *demo.Node) api.CAView {
	c.t.Helper()
	cl := c.Client(n)
	defer cl.Close()
	v, err := api.CA.Ask(c.t.Context(), cl)
	must(c.t, err)
	return v
}

// mysqldShows is the serial number of the certificate that a node's mysqld shows. It names the host and is what the
// cluster tells routers; ca: the digest of the CA that must have signed it, empty: any that the node trusts.
func (c *cluster) mysqldShows(n *demo.Node, ca string) string {
	c.t.Helper()
	var shown *x509.Certificate
	eventually(c.t, healLimit, "the cluster tells of it", func() error {
		shown = c.mysqldCertificate(n, ca) // each time, since mysqld may get another one meanwhile
		var p *api.MySQLProof
		for _, m := range c.view().Members {
			if m.Name == n.Name {
				p = m.MySQL.Proof
			}
		}
		if p == nil || !p.Cluster || p.Certificates[0] != fmt.Sprintf("%x", sha256.Sum256(shown.Raw)) {
			return fmt.Errorf("%s: %+v", n.Name, p)
		}
		return nil
	})
	return pki.SerialOf(shown)
}

// mysqldCertificate logs in at a node's mysqld, and is the certificate that it shows then.
func (c *cluster) mysqldCertificate(n *demo.Node, ca string) (shown *x509.Certificate) {
	c.t.Helper()
	trusted, err := os.ReadFile(filepath.Join(n.Dir, "tls", pki.CAFile))
	must(c.t, err)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(trusted)
	nc, err := net.Dial("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(n.Ports.MySQL)))
	must(c.t, err)
	defer nc.Close()
	secure := &tls.Config{RootCAs: roots, ServerName: "127.0.0.1", VerifyConnection: func(cs tls.ConnectionState) error {
		shown = cs.VerifiedChains[0][0]
		if digest := fmt.Sprintf("%x", sha256.Sum256(cs.VerifiedChains[0][1].Raw)); ca != "" && digest != ca {
			return fmt.Errorf("it is of the CA %s, not of %s", digest, ca)
		}
		return nil
	}}
	_, err = mysqlwire.Login(c.t.Context(), nc, mysqlwire.ClientConfig{User: "trireme_clone", Password: "x", TLS: secure})
	if refused, ok := errors.AsType[*mysqlwire.ServerError](err); !ok || refused.Code != mysqlwire.CodeAccessDenied {
		c.t.Fatalf("the mysqld of %s: %v", n.Name, err)
	}
	return shown
}

// overTLS is a session at a port of a node.
func (c *cluster) overTLS(n *demo.Node, port int) *session {
	c.t.Helper()
	l := c.Direct(n)
	cfg := mysql.NewConfig()
	cfg.User, cfg.Passwd, cfg.Net, cfg.TLSConfig, cfg.Timeout = l.User, l.Password, "tcp", "skip-verify", sqlLimit
	cfg.Addr = net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	connector, err := mysql.NewConnector(cfg)
	must(c.t, err)
	db := sql.OpenDB(connector)
	conn, err := db.Conn(c.t.Context())
	must(c.t, err)
	s := &session{c: c, db: db, conn: conn}
	c.t.Cleanup(s.close)
	return s
}

// serialOf a node's present certificate.
func (c *cluster) serialOf(n *demo.Node) string {
	c.t.Helper()
	text, err := os.ReadFile(filepath.Join(n.Dir, "tls", pki.NodeCertFile))
	must(c.t, err)
	block, _ := pem.Decode(text)
	cert, err := x509.ParseCertificate(block.Bytes)
	must(c.t, err)
	return pki.SerialOf(cert)
}
