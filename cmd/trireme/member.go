package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"strings"

	"trireme/internal/api"
)

// memberVerb is the flags of a verb about one member.
type memberVerb struct {
	remote
	Node string `arg:"" help:"Name of the node."`
	JSON bool   `help:"Print the result as JSON."`
}

// run asks for the change and prints its outcome. A misspelt node is found before anything is asked of the cluster.
func (c *memberVerb) run(e *env, confirm func() error, f func(*api.Client, context.Context, string) (api.MemberResult, error)) error {
	res, err := ask(c.remote, e, changes, func(client *api.Client, ctx context.Context) (res api.MemberResult, err error) {
		if err := checkNode(ctx, client, c.Node); err != nil {
			return res, err
		}
		if confirm != nil {
			if err := confirm(); err != nil {
				return res, err
			}
		}
		return f(client, ctx, c.Node)
	})
	if err != nil {
		return err
	}
	if c.JSON {
		return printJSON(e.out, res)
	}
	fmt.Fprintf(e.out, "%s\n", res.Message)
	fmt.Fprintf(e.out, "The cluster has %d voters and survives the loss of %d.\n", res.Voters, res.Survives)
	return nil
}

// removeCmd is `trireme remove`.
type removeCmd struct{ memberVerb }

// Run removes the member, dead or alive.
func (c *removeCmd) Run(e *env) error { return c.run(e, nil, (*api.Client).Remove) }

// promoteCmd is `trireme promote`.
type promoteCmd struct{ memberVerb }

// Run makes a learner a voter.
func (c *promoteCmd) Run(e *env) error { return c.run(e, nil, (*api.Client).Promote) }

// demoteCmd is `trireme demote`.
type demoteCmd struct{ memberVerb }

// Run makes a voter a learner.
func (c *demoteCmd) Run(e *env) error { return c.run(e, nil, (*api.Client).Demote) }

// reinitCmd is `trireme reinit`.
type reinitCmd struct {
	memberVerb
	Yes bool `help:"Do not ask."`
}

// Run throws the node's data away, once that is confirmed.
func (c *reinitCmd) Run(e *env) error {
	return c.run(e, func() error { return c.confirm(e) }, (*api.Client).Reinit)
}

// confirm wants the node's name typed: what the node holds and no other has is lost.
func (c *reinitCmd) confirm(e *env) error {
	if c.Yes {
		return nil
	}
	fmt.Fprintf(e.out, "All MySQL data of %s is thrown away and copied anew from another node.\nType the node's name to go on: ", c.Node)
	line, err := bufio.NewReader(io.LimitReader(e.in, 4096)).ReadString('\n')
	if err != nil && err != io.EOF {
		return err
	}
	switch typed := strings.TrimSpace(line); typed {
	case c.Node:
		return nil
	case "":
		return usagef("nothing was done; type the node's name, or give --yes")
	default:
		return usagef("nothing was done: %q is not %q", typed, c.Node)
	}
}
