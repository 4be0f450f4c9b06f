package main

import (
	"context"
	"fmt"
	"net"
	"strings"

	"trireme/internal/control/dashboard"
)

// dashboardCmd is `trireme dashboard`.
type dashboardCmd struct {
	remote
	JSON bool `help:"Print it as JSON."`
	CA   bool `name:"ca" help:"Print the certificate of the cluster's CA instead, for the browser to trust."`
}

// Run prints where the dashboard is, and a link that logs in once: the operator's token need not leave its file.
func (c *dashboardCmd) Run(e *env) error {
	if c.AsNode && !c.CA {
		return usagef("a node cannot log in to the dashboard").With("make a token: `trireme token add NAME --role viewer " +
			"--as-node --file FILE`, then `trireme dashboard --token-file FILE`")
	}
	t, err := c.choose(e.ctx, true)
	if err != nil {
		return err
	}
	if c.CA {
		fmt.Fprint(e.out, t.cred.CA)
		return nil
	}
	_, addr, _ := strings.Cut(t.base, "://")
	client := t.client()
	defer client.Close()
	ctx, cancel := context.WithTimeout(e.ctx, readTimeout)
	defer cancel()
	code, err := client.LoginCode(ctx)
	if err != nil {
		return err
	}
	at := client.URL()
	if host, _, err := net.SplitHostPort(addr); err == nil && c.API == "" && net.ParseIP(host).IsLoopback() {
		// The node of this host was asked; who opens the page may sit elsewhere.
		if m, err := client.Member(ctx); err == nil && m.Daemon.API != "" {
			at = "https://" + m.Daemon.API
		}
	}
	page, link := at+"/", dashboard.LoginLink(at, code)
	if c.JSON {
		return printJSON(e.out, map[string]any{"dashboard": page, "login": link, "seconds": code.Seconds})
	}
	fmt.Fprintln(e.out, link)
	fmt.Fprintf(e.out, "Open the link and press \"Log in\". It works once, within %d seconds.\n", code.Seconds)
	fmt.Fprintf(e.out, "%s is the dashboard from then on.\n", page)
	fmt.Fprintln(e.out,
		"A browser that does not know the cluster's CA warns: `trireme dashboard --ca` prints its certificate.")
	return nil
}
