package main

import (
	"cmp"
	"fmt"
	"os"
	"time"

	"trireme/internal/api"
	"trireme/internal/ops/cli"
)

// tokenCmd is `trireme token`.
type tokenCmd struct {
	Add    tokenAddCmd    `cmd:"" help:"Make a token with a role; it is shown once."`
	List   tokenListCmd   `cmd:"" help:"List the tokens, without their secrets."`
	Remove tokenRemoveCmd `cmd:"" help:"End a token, on all nodes at once, and the dashboard's sessions that began with it."`
}

type tokenAddCmd struct {
	remote
	Name    string        `arg:"" help:"Whom it names in the audit log."`
	Role    string        `required:"" enum:"viewer,operator,admin" placeholder:"viewer|operator|admin" help:"What it allows: viewer (look), operator (switchover, failover, pause, resume, reinit) or admin (everything)."`
	Expires time.Duration `placeholder:"TIME" help:"How long it is valid, such as 30d. Default: until it is removed."`
	File    string        `placeholder:"FILE" help:"Write it there, mode 0600, with the CA and the nodes' addresses, instead of printing it; for --token-file."`
	JSON    bool          `help:"Print it as JSON."`
}

// Run makes the token.
func (c *tokenAddCmd) Run(e *env) error {
	if c.File != "" {
		if _, err := os.Stat(c.File); err == nil {
			return fmt.Errorf("%s exists: choose another file, or remove it", c.File)
		}
	}
	res, err := have(c.remote, e, api.NewToken, api.TokenRequest{Name: c.Name, Role: c.Role, Life: c.Expires})
	if err != nil {
		return err
	}
	if c.File != "" {
		if err := c.write(e, res.Token); err != nil {
			return fmt.Errorf("%w; the token %q is lost: remove it (trireme token remove %[2]s)", err, c.Name)
		}
		res.Token = ""
	}
	if c.JSON {
		return printJSON(e.out, res)
	}
	fmt.Fprintln(e.out, cmp.Or(res.Token, c.File))
	fmt.Fprintf(e.errOut, "token %s, role %s, valid until %s; it is not shown again\n", res.Name, res.Role,
		whenOr(res.Expires, "it is removed"))
	return nil
}

// write makes a credential like the one that asked.
func (c *tokenAddCmd) write(e *env, token string) error {
	t, err := c.choose(e.ctx, true)
	if err != nil {
		return err
	}
	t.cred.Token = token
	return t.cred.WriteTo(c.File)
}

func whenOr(t *time.Time, otherwise string) string {
	if t == nil {
		return otherwise
	}
	return t.UTC().Format(time.RFC3339)
}

type tokenListCmd struct {
	remote
	JSON bool `help:"Print GET /tokens as it is."`
}

// Run prints the list.
func (c *tokenListCmd) Run(e *env) error {
	list, err := look(c.remote, e, looks, api.Tokens)
	if err != nil {
		return err
	}
	if c.JSON {
		return printJSON(e.out, list)
	}
	rows := [][]string{{"NAME", "ROLE", "MADE", "EXPIRES"}}
	for _, t := range list {
		end := whenOr(t.Expires, "never")
		if t.Expired {
			end = e.odd(end + ": it has")
		}
		rows = append(rows, []string{t.Name, t.Role, whenOr(t.Made, "by init"), end})
	}
	cli.PrintTable(e.out, rows)
	return nil
}

type tokenRemoveCmd struct {
	remote
	Name string `arg:"" help:"Its name."`
	JSON bool   `help:"Print what it was as JSON."`
}

// Run ends the token.
func (c *tokenRemoveCmd) Run(e *env) error {
	res, err := have(c.remote, e, api.RemoveToken, api.TokenName{Name: c.Name})
	if err != nil {
		return err
	}
	if c.JSON {
		return printJSON(e.out, res)
	}
	fmt.Fprintf(e.out, "token %s (%s) is no longer valid\n", res.Name, res.Role)
	return nil
}
