package main

import (
	_ "embed"

	"trireme/internal/api"
	"trireme/internal/ops/cli"
)

// manualCmd writes the manual from the same declarations that --help is printed from.
type manualCmd struct {
	Dir      string `arg:"" optional:"" type:"path" help:"Where the man pages go, one for each verb."`
	Markdown bool   `help:"Print docs/cli.md."`
	API      bool   `help:"Print docs/api.md."`
}

// Run writes the pages.
func (c *manualCmd) Run(e *env) error {
	if c.API {
		cli.WriteAPI(e.out)
		return nil
	}
	return manual.Write(e.out, e.app, c.Dir, c.Markdown)
}

// exitCodes and environment are told on the pages of trireme itself.
var (
	exitCodes = [][2]string{{"0", "Done."}, {"1", "Failed, or a check found something."},
		{"2", "The command line is wrong; nothing was done."},
		{"3", "No node answers, or there is no leader or no majority."},
		{"4", "The daemon or router ended, and starting it again would not help."}}
	environment = [][2]string{
		{"TRIREME_API", "Node to talk to, when --api is not given."},
		{"TRIREME_CLUSTER", "Whose credential in ~/.config/trireme to use when there are several."},
		{"TRIREME_TOKEN", "The operator's token, when --token-file is not given."},
		{"TRIREME_CA", "The cluster's CA, when --cluster-ca is not given: for a token that comes without it."},
		{"TRIREME_CONFIG", "Settings of this host's node, in place of /etc/trireme/trireme.toml."},
		{"TRIREME_JOIN_TOKEN", "Join token of join and adopt."},
		{"TRIREME_MYSQL_PASSWORD", "Password of --user of adopt, check and advise, when --password-file is not given."},
		{"EDITOR", "For config edit without arguments."},
		{"MYSQLD", "mysqld to run, when mysql.binary is not set."},
		{"TRIREME_CACHE", "Folder in which a MySQL is looked for that was downloaded. Default: ~/.cache/trireme."},
		{"NO_COLOR", "If not empty, print no colours. Output that is not a terminal never has them."},
	}
)

// cliIntro is what docs/cli.md says of all verbs.
//
//go:embed cli.md
var cliIntro string

var manual = cli.Manual{Intro: cliIntro, ExitCodes: exitCodes, Kinds: api.Kinds, Environment: environment,
	Common: []string{"api", "cluster", "token-file", "cluster-ca", "as-node"}}
