package main

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"

	"trireme/internal/api"
	"trireme/internal/base/config"
	"trireme/internal/ops/cli"
)

// configHistoryCmd is `trireme config history`.
type configHistoryCmd struct {
	remote
	JSON bool `help:"Print GET /config/history as it is."`
}

// Run prints the changes, oldest first.
func (c *configHistoryCmd) Run(e *env) error {
	v, err := look(c.remote, e, looks, api.ConfigHistory)
	if err != nil {
		return err
	}
	if c.JSON {
		return printJSON(e.out, v)
	}
	rows := [][]string{{"VERSION", "WHEN", "WHO", "WHAT"}}
	for _, r := range v.Revisions {
		number, when, who := strconv.FormatUint(r.Version, 10), clock(r.At), r.By
		for _, ch := range r.Changes {
			rows = append(rows, []string{number, when, who, changeText(ch)})
			number, when, who = "", "", ""
		}
	}
	if len(rows) > 1 {
		cli.PrintTable(e.out, rows)
	}
	e.say("the settings of cluster %s are at version %d; they can be rolled back as far as to version %d", v.Cluster,
		v.Version, v.Oldest)
	return nil
}

// configDiffCmd is `trireme config diff`.
type configDiffCmd struct {
	remote
	From uint64 `arg:"" help:"Version, as trireme config history numbers them."`
	To   uint64 `arg:"" optional:"" help:"A later one. Default: the present one."`
	JSON bool   `help:"Print the changes as JSON."`
}

// configDiff is what --json prints.
type configDiff struct {
	Cluster string          `json:"cluster"`
	From    uint64          `json:"from"`
	To      uint64          `json:"to"`
	Changes []config.Change `json:"changes"`
}

// Run prints what differs.
func (c *configDiffCmd) Run(e *env) error {
	v, err := look(c.remote, e, looks, api.ConfigHistory)
	if err != nil {
		return err
	}
	d := configDiff{Cluster: v.Cluster, From: c.From, To: cmp.Or(c.To, v.Version)}
	switch {
	case d.From < v.Oldest:
		return api.Errorf(api.KindNotFound, "version %d is not kept any more; the oldest is %d", d.From, v.Oldest)
	case max(d.From, d.To) > v.Version:
		return api.Errorf(api.KindNotFound, "there is no version %d yet; the settings are at version %d", max(d.From, d.To),
			v.Version)
	case d.From > d.To:
		return usagef("version %d is later than %d: give the earlier one first", d.From, d.To)
	}
	d.Changes = append([]config.Change{}, config.Between(v.Revisions, d.From, d.To)...)
	if c.JSON {
		return printJSON(e.out, d)
	}
	for _, ch := range d.Changes {
		e.say("%s", changeText(ch))
	}
	if len(d.Changes) == 0 {
		e.say("the settings of cluster %s are the same at versions %d and %d", d.Cluster, d.From, d.To)
	}
	return nil
}

// changeText is one change in words.
func changeText(c config.Change) string {
	switch {
	case c.Before == nil:
		return fmt.Sprintf("%s = %s, new", c.Key, valueText(*c.After))
	case c.After == nil:
		return fmt.Sprintf("%s is gone, it was %s", c.Key, valueText(*c.Before))
	}
	return fmt.Sprintf("%s = %s, it was %s", c.Key, valueText(*c.After), valueText(*c.Before))
}

func valueText(v string) string {
	if v == "" {
		return `""`
	}
	return v
}

// configRollbackCmd is `trireme config rollback`.
type configRollbackCmd struct {
	remote
	To     uint64 `arg:"" name:"version" help:"Version to restore, as trireme config history numbers them."`
	DryRun bool   `help:"Say what would change; change nothing."`
	Yes    bool   `help:"Do not ask."`
	JSON   bool   `help:"Print the result as JSON."`
}

// Run shows first what would change, has that confirmed, and asks for exactly that.
func (c *configRollbackCmd) Run(e *env) error {
	if c.JSON && !c.DryRun && !c.Yes {
		return usagef("--json goes with --dry-run or --yes: with neither it is asked for")
	}
	rollback := func(req api.ConfigRollback) (api.ConfigRollbackResult, error) {
		return have(c.remote, e, api.RollbackConfig, req)
	}
	res, err := rollback(api.ConfigRollback{To: c.To, DryRun: true})
	if err != nil {
		return err
	}
	if !c.JSON {
		for _, ch := range res.Changes {
			e.say("%s", changeText(ch))
		}
		if len(res.Kept) > 0 {
			e.say("these stay as they are, their nodes were no members then: %s", strings.Join(res.Kept, " "))
		}
	}
	if len(res.Changes) > 0 && !c.DryRun {
		if !c.Yes {
			e.ask("Type the number of the version, %d, to continue: ", c.To)
			if err := typed(e, strconv.FormatUint(c.To, 10), "the number of the version", "--yes"); err != nil {
				return err
			}
		}
		if res, err = rollback(api.ConfigRollback{To: c.To, Version: res.Version}); err != nil {
			return err
		}
	}
	switch {
	case c.JSON:
		return printJSON(e.out, res)
	case len(res.Changes) == 0:
		e.say("the settings of cluster %s, at version %d, do not differ from those of version %d: nothing is changed",
			res.Cluster, res.Version, c.To)
	case !c.DryRun:
		fmt.Fprintf(e.out, "the settings of cluster %s are at version %d\n", res.Cluster, res.Version)
	}
	return nil
}
