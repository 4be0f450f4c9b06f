package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"trireme/internal/api"
	"trireme/internal/base/pki"
	"trireme/internal/base/poll"
	"trireme/internal/ops/cli"
	"trireme/internal/ops/setup"
)

// caPatience is for all nodes to take a step in a change of the CA.
const caPatience = 2 * time.Minute

type certNewCACmd struct {
	remote
	Finish bool `xor:"step" help:"Switch all nodes to the new CA, and then trust it alone."`
	Abort  bool `xor:"step" help:"Take back a change that has only begun."`
	JSON   bool `help:"Print the result as JSON."`
}

// Run takes the step and waits until all nodes have. The credential in ~/.config/trireme goes along.
func (c *certNewCACmd) Run(e *env) error {
	step, done := api.CABegin, func(v api.CAView) bool { return v.Next != "" && v.Trusting(v.Next) }
	switch {
	case c.Finish:
		step, done = api.CAFinish, func(v api.CAView) bool { return v.Next == "" && len(v.Trusts) == 1 }
	case c.Abort:
		step, done = api.CAAbort, func(v api.CAView) bool { return v.Next == "" && len(v.Trusts) == 1 }
	}
	if c.Finish { // trust it here first
		v, err := look(c.remote, e, changes, api.CA)
		if err != nil {
			return err
		}
		c.keep(v)
	}
	v, err := have(c.remote, e, api.ChangeCA, api.CARequest{Step: step})
	w := e.wait(caPatience)
	for err == nil && !done(v) {
		if time.Since(w.began) > caPatience {
			return fmt.Errorf("not all nodes have taken this step yet (%s); it goes on by itself: see `trireme cert ca`, and the log of a node that has not",
				caMissing(v))
		}
		w.say(e, caMissing(v))
		if poll.Pause(e.ctx, 500*time.Millisecond) != nil {
			return e.ctx.Err()
		}
		if next, problem := look(c.remote, e, changes, api.CA); problem == nil {
			v = next
		}
	}
	if err != nil {
		return err
	}
	c.keep(v)
	if c.JSON {
		return printJSON(e.out, v)
	}
	switch {
	case c.Finish:
		e.say("the cluster trusts its new CA alone: SHA-256 %s", v.Signer)
		e.say("Join tokens that were made before are not valid any more.")
	case c.Abort:
		e.say("the cluster keeps its CA: SHA-256 %s", v.Signer)
	default:
		e.say("all nodes trust a new CA, too: SHA-256 %s", v.Next)
		e.say("Give both to routers and other operators now (`trireme cert ca --pem`); then: `trireme cert new-ca --finish`")
		e.say("Nodes that were removed, or given up by force-quorum, while they were down cannot learn that after --finish: start them once before, or wipe them.")
	}
	return nil
}

// keep writes what nodes trust into the credential that was used, and into those of ~/.config/trireme that are of the
// same cluster.
func (c *certNewCACmd) keep(v api.CAView) {
	update := func(cred setup.Credential, write func(setup.Credential)) {
		ca, err := pki.DigestOf([]byte(cred.CA)) // not only the name: another cluster may have it too
		if err == nil && slices.Contains(v.Trusts, ca) && v.Certs != "" && cred.CA != v.Certs {
			cred.CA = v.Certs
			write(cred)
		}
	}
	if cred, err := setup.LoadCredential(c.TokenFile); c.TokenFile != "" && err == nil {
		update(cred, func(cred setup.Credential) { _ = cred.WriteTo(c.TokenFile) })
	}
	stored, _ := setup.Credentials("")
	for _, cred := range stored {
		update(cred, func(cred setup.Credential) { _, _ = cred.Save("") })
	}
}

type certCACmd struct {
	remote
	PEM  bool `name:"pem" help:"Print the certificates that are trusted, for --ca of a router or a browser."`
	JSON bool `help:"Print GET /ca as it is."`
}

// Run shows it.
func (c *certCACmd) Run(e *env) error {
	v, err := look(c.remote, e, changes, api.CA) // it only reads, but not for everybody
	if err != nil {
		return err
	}
	switch {
	case c.JSON:
		return printJSON(e.out, v)
	case c.PEM:
		fmt.Fprint(e.out, v.Certs)
		return nil
	case v.Next == "" && v.Rotating:
		e.say("not all nodes have the new password of trireme_clone yet")
		fallthrough
	case v.Next == "":
		e.say("no change of the CA is under way; SHA-256 of the present one: %s", v.Signer)
		return nil
	}
	rows := [][]string{{"NODE", "TRUSTS THE NEW CA", "ITS CERTIFICATE IS OF"}}
	for _, n := range v.Nodes {
		row := []string{n.Name, "not heard of", "?"}
		if n.Up {
			row = []string{n.Name, "no", "the old one"}
		}
		for _, t := range n.Trusts {
			if t == v.Next {
				row[1] = "yes"
			}
		}
		if n.Signer == v.Next {
			row[2] = "the new one"
		}
		rows = append(rows, row)
	}
	cli.PrintTable(e.out, rows)
	next := "trireme cert new-ca --finish, or --abort"
	if v.Finish {
		next = "nodes switch by themselves; a node that is down delays it"
	}
	e.say("the new CA: SHA-256 %s", v.Next)
	e.say("next: %s", next)
	return nil
}

// caMissing says which nodes a step of the change waits for: those that are down, or trust other CAs than the node that
// was asked.
func caMissing(v api.CAView) string {
	var out []string
	for _, n := range v.Nodes {
		switch {
		case !n.Up:
			out = append(out, n.Name+" does not answer")
		case !slices.Equal(n.Trusts, v.Trusts) || n.Signer != v.Signer:
			out = append(out, n.Name+" has not taken this step")
		}
	}
	if len(out) == 0 {
		return "the leader ends the step"
	}
	return strings.Join(out, ", ")
}
