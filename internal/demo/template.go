package demo

import (
	"context"

	"trireme/internal/config"
	"trireme/internal/mysqld"
)

// Template is a new data directory with Trireme's accounts in it. A node that begins with a copy of it starts some seven seconds earlier than one
// whose mysqld makes its own. All clusters that begin with it have the same secrets.
type Template struct {
	dir     string
	binary  mysqld.Binary
	secrets config.Secrets
}

// NewTemplate makes one in dir, with the mysqld that mysql names; empty: found as `trireme node` finds it. Nodes that begin with it may
// have no options that give a data directory its form.
func NewTemplate(ctx context.Context, mysql, dir string) (*Template, error) {
	bin, err := mysqld.Find(ctx, mysql)
	if err != nil {
		return nil, err
	}
	t := &Template{dir: dir, binary: bin, secrets: config.NewSecrets()}
	return t, mysqld.Initialize(ctx, t.config(dir, config.Default()))
}

// config of a server in dir, as far as its data directory is concerned.
func (t *Template) config(dir string, n config.Node) mysqld.Config {
	return mysqld.Config{Binary: t.binary, Dir: dir, Port: n.MySQL.Port, ServerID: 1, OSUser: n.MySQL.OSUser, Extra: n.MySQL.Options,
		Admin: mysqld.Account(t.secrets.Admin), Repl: mysqld.Account(t.secrets.Repl), Clone: mysqld.Account(t.secrets.Clone)}
}

// fill gives a node that has never run its data directory.
func (t *Template) fill(ctx context.Context, n config.Node) error {
	return mysqld.InitializeFrom(ctx, t.config(n.MySQLDir(), n), t.dir)
}
