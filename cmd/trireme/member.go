package main

import (
	"context"
	"fmt"
	"slices"

	"trireme/internal/api"
)

// memberVerb is the flags of a verb about one member.
type memberVerb struct {
	remote
	Node string `arg:"" help:"Name of the node."`
	changeFlags
}

// changeFlags are those of every change of the membership.
type changeFlags struct {
	IfTerm uint64 `placeholder:"TERM" help:"Refuse unless this is still the term, as status showed it."`
	JSON   bool   `help:"Print the result as JSON."`
}

// run asks for the change and prints its outcome. A misspelt node is found before anything is asked of the cluster.
func (c *changeFlags) run(r remote, e *env, nodes []string, confirm func() error,
	f func(*api.Client, context.Context) (api.MemberResult, error)) error {
	res, err := ask(r, e, changes, func(client *api.Client, ctx context.Context) (res api.MemberResult, err error) {
		for _, node := range nodes {
			if err := checkNode(ctx, client, node); err != nil {
				return res, err
			}
		}
		if confirm != nil {
			if err := confirm(); err != nil {
				return res, err
			}
		}
		return f(client, ctx)
	})
	if err != nil {
		return err
	}
	if c.JSON {
		return printJSON(e.out, res)
	}
	if sw := res.Switchover; sw != nil {
		fmt.Fprintf(e.out, "%s leads now, in term %d (before: %s); writes were held for %.0f ms\n", sw.To, sw.Term, sw.From,
			sw.WriteGapMS)
	}
	e.say("%s", res.Message)
	fmt.Fprintf(e.out, "The cluster has %d voters and survives the loss of %d.\n", res.Voters, res.Survives)
	return nil
}

// leaveVerb is memberVerb for one that may be the leader.
type leaveVerb struct {
	memberVerb
	trxPolicy
}

func (c *leaveVerb) run(e *env, verb api.Verb[api.MemberRequest, api.MemberResult]) error {
	wait, err := c.wait()
	if err != nil {
		return err
	}
	return c.changeFlags.run(c.remote, e, []string{c.Node}, nil,
		func(client *api.Client, ctx context.Context) (api.MemberResult, error) {
			return verb.Ask(ctx, client, api.MemberRequest{Name: c.Node, IfTerm: c.IfTerm, OpenTrxWait: &wait})
		})
}

// removeCmd is `trireme remove`.
type removeCmd struct{ leaveVerb }

// Run removes the member, dead or alive.
func (c *removeCmd) Run(e *env) error { return c.run(e, api.Remove) }

// demoteCmd is `trireme demote`.
type demoteCmd struct{ leaveVerb }

// Run makes a voter a learner.
func (c *demoteCmd) Run(e *env) error { return c.run(e, api.Demote) }

// promoteCmd is `trireme promote`.
type promoteCmd struct {
	remote
	Nodes  []string `arg:"" name:"node" help:"Names of the learners."`
	Demote []string `placeholder:"NODE,…" help:"Voters that become learners at the same moment."`
	Remove []string `placeholder:"NODE,…" help:"Voters, dead or alive, that leave the cluster at the same moment."`
	changeFlags
}

// Run makes learners voters.
func (c *promoteCmd) Run(e *env) error {
	return c.run(c.remote, e, slices.Concat(c.Nodes, c.Demote, c.Remove), nil,
		func(client *api.Client, ctx context.Context) (api.MemberResult, error) {
			return api.Promote.Ask(ctx, client, api.PromoteRequest{Names: c.Nodes, Demote: c.Demote, Remove: c.Remove,
				IfTerm: c.IfTerm})
		})
}

// reinitCmd is `trireme reinit`.
type reinitCmd struct {
	memberVerb
	Yes bool `help:"Do not ask."`
}

// Run throws the node's data away, once that is confirmed.
func (c *reinitCmd) Run(e *env) error {
	return c.run(c.remote, e, []string{c.Node}, func() error { return c.confirm(e) },
		func(client *api.Client, ctx context.Context) (api.MemberResult, error) {
			return api.Reinit.Ask(ctx, client, api.MemberRequest{Name: c.Node, IfTerm: c.IfTerm})
		})
}

// confirm wants the node's name typed: what the node holds and no other has is lost.
func (c *reinitCmd) confirm(e *env) error {
	if c.Yes {
		return nil
	}
	e.ask("All MySQL data of %s is deleted and copied again from another node.\nType the node's name to continue: ",
		c.Node)
	return typed(e, c.Node, "the node's name", "--yes")
}

// typed wants something typed, which is what.
func typed(e *env, name, what, flag string) error {
	got, err := e.typed()
	if err != nil {
		return err
	}
	switch got {
	case name:
		return nil
	case "":
		return usagef("nothing was done; type %s, or give %s", what, flag)
	default:
		return usagef("nothing was done: %q is not %q", got, name)
	}
}
