package robustness

import (
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"trireme/internal/api"
	"trireme/internal/config"
	"trireme/internal/demo"
	"trireme/internal/pki"
	"trireme/internal/setup"
	"trireme/internal/testkit"
	"trireme/internal/verify"
)

// TestAccess: on a running cluster that takes writes all the time, a token with a role, a change of the CA, the revocation of a node's
// certificate by its serial, and at last of a whole node. Nobody leads but who led, and nothing that was acknowledged is missing.
func TestAccess(t *testing.T) {
	t.Parallel()
	c := create(t, 3, 0)
	leader := c.healthy()
	others := c.others(leader)
	before := c.view()
	w := c.load(verify.Config{Writers: 2})

	token := result[api.TokenResult](c, leader, 0, "token add eyes --role viewer").Token
	for _, n := range c.Nodes() {
		cl := c.ClientWith(n, token)
		defer cl.Close()
		eventually(t, healLimit, n.Name+" takes the token", func() error { _, err := cl.Tokens(t.Context()); return err })
		if _, err := cl.Switchover(t.Context(), api.SwitchoverRequest{}); api.KindOf(err) != api.KindForbidden || !strings.Contains(err.Error(), string(pki.Viewer)) {
			t.Errorf("%s: a viewer switches over: %v", n.Name, err)
		}
	}
	c.says(others[0], 0, "token remove eyes", "eyes")

	// Without any credential, on a node's host.
	made := filepath.Join(t.TempDir(), "made")
	cmd := exec.CommandContext(t.Context(), testkit.Program(t, testkit.Trireme), "token", "add", "again", "--role", "admin", "--as-node", "--file", made)
	cmd.Env = append(os.Environ(), "TRIREME_CONFIG="+config.SettingsFile(leader.Dir), "XDG_CONFIG_HOME="+t.TempDir())
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	cred, err := setup.LoadCredential(made)
	must(t, err)
	cl := c.ClientWith(others[0], cred.Token)
	defer cl.Close()
	eventually(t, healLimit, "the new token counts", func() error {
		_, err := cl.Switchover(t.Context(), api.SwitchoverRequest{DryRun: true})
		return err
	})
	if out, err := exec.CommandContext(t.Context(), testkit.Program(t, testkit.Trireme), "token", "list", "--token-file", made, "--api", cred.API[0]).CombinedOutput(); err != nil {
		t.Errorf("the file that was written: %v: %s", err, out)
	}

	first := c.caOf(leader).Signer
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
	c.writesMore(w, 50)
	c.stays(before)

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
	v, err := cl.CA(c.t.Context())
	must(c.t, err)
	return v
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
