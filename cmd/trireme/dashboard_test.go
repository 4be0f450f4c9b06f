package main

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"trireme/internal/api"
	"trireme/internal/base/pki"
	"trireme/internal/control/dashboard"
	"trireme/internal/ops/setup"
)

// TestDashboard: the link that the command prints logs in, once, and tells nothing of the token.
func TestDashboard(t *testing.T) {
	ca, err := pki.NewCA("prod", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	bundle, err := ca.Issue(pki.NodeCert{Name: "n1", ID: 1, Hosts: []string{"127.0.0.1"}}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	s := api.NewServer(api.Options{Name: "n1", Listen: "127.0.0.1:0", Backend: &fake{view: withLeader()},
		TLS: bundle.ServerJoinTLS(), NodeToken: "x"})
	pages := dashboard.New(dashboard.Options{Cluster: "prod", Source: s.Console(), Stopping: s.Stopping()})
	s.SetPages(pages)
	if err := s.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close(t.Context()); pages.Close() })

	file := filepath.Join(t.TempDir(), "credential")
	b, _ := json.Marshal(setup.Credential{Cluster: "prod", Token: "secret", CA: string(ca.CertPEM()),
		API: []string{s.Addr()}})
	if err := os.WriteFile(file, b, 0o600); err != nil {
		t.Fatal(err)
	}
	var out, errOut bytes.Buffer
	for _, args := range [][]string{{"--ca"}, nil} {
		out.Reset()
		if code := run(append([]string{"dashboard", "--api", "http://" + s.Addr(), "--token-file", file}, args...),
			strings.NewReader(""), &out, &errOut); code != 0 {
			t.Fatalf("exit code %d: %s", code, errOut.String())
		}
		if len(args) > 0 && out.String() != string(ca.CertPEM()) {
			t.Errorf("--ca: %s", out.String())
		}
	}
	link := regexp.MustCompile(`(https://\S+/ui/login)#(\S+)`).FindStringSubmatch(out.String())
	if link == nil || strings.Contains(out.String(), "secret") {
		t.Fatalf("it prints %s", out.String())
	}
	trust, err := pki.ClientTLS(ca.CertPEM())
	if err != nil {
		t.Fatal(err)
	}
	browser := &http.Client{Transport: &http.Transport{TLSClientConfig: trust},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	defer browser.CloseIdleConnections()
	for i, want := range []int{http.StatusSeeOther, http.StatusUnauthorized} {
		res, err := browser.PostForm(link[1], url.Values{"token": {link[2]}})
		if err != nil {
			t.Fatal(err)
		}
		_ = res.Body.Close()
		if res.StatusCode != want {
			t.Errorf("use %d of the link: status %d", i, res.StatusCode)
		}
	}
}
