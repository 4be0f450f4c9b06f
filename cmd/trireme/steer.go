package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"trireme/internal/api"
	"trireme/internal/base/config"
	"trireme/internal/ops/cli"
)

// whyNotCmd is `trireme why-not`.
type whyNotCmd struct {
	remote
	Node string `arg:"" help:"Name of the node."`
	JSON bool   `help:"Print GET /why-not as it is."`
}

// Run prints the reasons. The exit code says only whether the question was answered.
func (c *whyNotCmd) Run(e *env) error {
	v, err := ask(c.remote, e, reads, func(client *api.Client, ctx context.Context) (api.WhyNotView, error) {
		return client.WhyNot(ctx, c.Node)
	})
	if err != nil {
		return err
	}
	if c.JSON {
		return printJSON(e.out, v)
	}
	switch {
	case v.Leads:
		fmt.Fprintf(e.out, "%s leads: it takes writes in term %d\n", v.Node, v.Term)
	case v.CanLead:
		fmt.Fprintf(e.out, "%s could lead (as %s sees it, term %d)\n", v.Node, v.SeenBy, v.Term)
	default:
		fmt.Fprintf(e.out, "%s cannot lead now (as %s sees it, term %d)\n", v.Node, v.SeenBy, v.Term)
	}
	for _, r := range v.Reasons {
		mark := "  - "
		if r.Bars {
			mark = "  " + e.bad("!") + " "
		}
		for i, line := range cli.Wrap(r.Text, 96) {
			if i > 0 {
				mark = "    "
			}
			fmt.Fprintln(e.out, mark+line)
		}
	}
	if v.Zone != nil {
		for _, line := range cli.Wrap(v.Zone.Text, 98) {
			fmt.Fprintln(e.out, "  "+line)
		}
	}
	return nil
}

// pauseCmd is `trireme pause`.
type pauseCmd struct {
	remote
	For  time.Duration `placeholder:"TIME" help:"End by itself after this time, such as 30m. Default: until trireme resume."`
	JSON bool          `help:"Print the result as JSON."`
}

// Run pauses, or changes when a pause ends.
func (c *pauseCmd) Run(e *env) error {
	if c.For < 0 || c.For > 0 && c.For < time.Second {
		return usagef("--for=%v is too short; at least 1s", c.For)
	}
	res, err := have(c.remote, e, api.Pause, api.PauseRequest{For: c.For})
	return e.paused(res, err, c.JSON)
}

// resumeCmd is `trireme resume`.
type resumeCmd struct {
	remote
	JSON bool `help:"Print the result as JSON."`
}

// Run ends a pause.
func (c *resumeCmd) Run(e *env) error {
	res, err := have(c.remote, e, api.Resume, api.ResumeRequest{})
	return e.paused(res, err, c.JSON)
}

// paused prints what became of a pause or its end.
func (e *env) paused(res api.PauseResult, err error, asJSON bool) error {
	if err != nil {
		return err
	}
	if asJSON {
		return printJSON(e.out, res)
	}
	switch {
	case res.Pause == nil && res.Before == nil:
		fmt.Fprintln(e.out, "automatic failover is on; it was not paused")
	case res.Pause == nil:
		fmt.Fprintf(e.out, "automatic failover is on again; it was paused since %s\n", clock(res.Before.Since))
	default:
		fmt.Fprintf(e.out, "automatic failover is paused %s; fences are not\n", pauseEnd(res.Pause))
		if res.Before != nil {
			fmt.Fprintf(e.out, "(it was paused already, since %s, %s)\n", clock(res.Before.Since), pauseEnd(res.Before))
		}
	}
	return nil
}

func clock(t time.Time) string { return t.Local().Format("2006-01-02 15:04:05") }

func pauseEnd(p *api.PauseView) string {
	if p.Until == nil {
		return "until `trireme resume`"
	}
	return "until " + clock(*p.Until)
}

// configShowCmd is `trireme config show`.
type configShowCmd struct {
	remote
	JSON bool `help:"Print GET /config as it is."`
}

// Run prints the settings of the cluster.
func (c *configShowCmd) Run(e *env) error {
	v, err := look(c.remote, e, reads, api.Config)
	if err != nil {
		return err
	}
	if c.JSON {
		return printJSON(e.out, v)
	}
	fmt.Fprint(e.out, settingsText(v))
	return nil
}

func settingsText(v api.ConfigView) string {
	return fmt.Sprintf("# Settings of cluster %s, version %d\n%s", v.Cluster, v.Version, config.RenderSettings(v.Settings))
}

// configEditCmd is `trireme config edit`.
type configEditCmd struct {
	remote
	Set  []string `arg:"" optional:"" name:"key=value" help:"What to set, such as weight.db2=200. Without: edit all in $$EDITOR."`
	JSON bool     `help:"Print the settings as they are then, as GET /config does."`
}

// Run changes settings: all of them or none.
func (c *configEditCmd) Run(e *env) error {
	set, err := parsePairs(c.Set)
	if err != nil {
		return err
	}
	req := api.ConfigChange{Set: set}
	if len(set) == 0 {
		v, err := look(c.remote, e, reads, api.Config)
		if err != nil {
			return err
		}
		if req, err = editSettings(e, v); err != nil {
			return err
		}
		if len(req.Set) == 0 && c.JSON {
			return printJSON(e.out, v)
		}
		if len(req.Set) == 0 {
			fmt.Fprintln(e.out, "nothing changed")
			return nil
		}
	}
	v, err := have(c.remote, e, api.ChangeConfig, req)
	if err != nil {
		return err
	}
	if c.JSON {
		return printJSON(e.out, v)
	}
	for _, k := range slices.Sorted(maps.Keys(req.Set)) {
		fmt.Fprintf(e.out, "%s = %s\n", k, req.Set[k])
	}
	fmt.Fprintf(e.out, "the settings of cluster %s are at version %d\n", v.Cluster, v.Version)
	return nil
}

func parsePairs(pairs []string) (map[string]string, error) {
	set := map[string]string{}
	for _, p := range pairs {
		k, v, found := strings.Cut(p, "=")
		if !found {
			return nil, usagef("%q is not KEY=VALUE, such as weight.db2=200", p)
		}
		if err := config.CheckSetting(k, v); err != nil {
			return nil, usagef("%v", err)
		}
		if _, twice := set[k]; twice {
			return nil, usagef("%s is given twice", k)
		}
		set[k] = v
	}
	return set, nil
}

// editSettings lets the operator edit the text, and gives what differs. The change is refused if somebody else was
// quicker.
func editSettings(e *env, v api.ConfigView) (api.ConfigChange, error) {
	req := api.ConfigChange{Version: v.Version, Set: map[string]string{}}
	dir, err := os.MkdirTemp("", "trireme-")
	if err != nil {
		return req, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	file := filepath.Join(dir, v.Cluster+".toml")
	if err := os.WriteFile(file, []byte(settingsText(v)), 0o600); err != nil {
		return req, err
	}
	editor := strings.Fields(os.Getenv("EDITOR"))
	if len(editor) == 0 {
		editor = []string{"vi"}
	}
	cmd := exec.CommandContext(e.ctx, editor[0], append(editor[1:], file)...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = e.in, e.out, e.errOut
	if err := cmd.Run(); err != nil {
		return req, fmt.Errorf("the editor %s failed, nothing is changed: %w", editor[0], err)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return req, err
	}
	edited, err := config.ParseSettings(string(text))
	if err != nil {
		return req, fmt.Errorf("nothing is changed: %w", err)
	}
	for _, s := range v.Settings {
		value, found := edited[s.Key]
		if !found {
			return req, fmt.Errorf("nothing is changed: %s is missing in what you wrote", s.Key)
		}
		if value != s.Value {
			req.Set[s.Key] = value
		}
		delete(edited, s.Key)
	}
	for k := range edited {
		return req, errors.New("nothing is changed: there is no setting " + k)
	}
	return req, nil
}
