package demo

import (
	"context"
	"fmt"

	"trireme/internal/base/config"
	"trireme/internal/base/datacache"
	"trireme/internal/mysql/mysqld"
)

// Template is a new data directory with Trireme's accounts in it, of the cache (package datacache). A node that begins
// with a copy of it starts some seven seconds earlier than one whose mysqld makes its own. All clusters that begin with
// it have the same secrets.
type Template struct {
	dir     string
	binary  mysqld.Binary
	secrets config.Secrets
}

// NewTemplate finds one, or makes it, with the mysqld that mysql names; empty: found as `trireme node` finds it. Nodes
// that begin with it may have no options that give a data directory its form.
func NewTemplate(ctx context.Context, mysql string) (*Template, error) {
	bin, err := mysqld.Find(ctx, mysql)
	if err != nil {
		return nil, err
	}
	t := &Template{binary: bin, secrets: config.NewSecrets()}
	t.dir, err = datacache.Dir(ctx, mysqld.CacheDir(), bin.Path, t.recipe(), func(ctx context.Context, dir string) error {
		if err := mysqld.Initialize(ctx, t.config(dir, config.Default())); err != nil {
			return err
		}
		return t.secrets.Save(dir)
	})
	if err != nil {
		return nil, err
	}
	t.secrets, err = config.LoadSecrets(t.dir)
	return t, err
}

// recipe is that of the data directory without the passwords, which are random and kept with it. A kind of secret that
// is new is a new recipe.
func (t *Template) recipe() string {
	named := *t
	for _, a := range []*config.Account{&named.secrets.Admin, &named.secrets.Repl, &named.secrets.Feed,
		&named.secrets.Clone} {
		a.Password = ""
	}
	named.secrets.APIToken = ""
	return fmt.Sprintf("%s, secrets %+v", named.config("/", config.Default()).Recipe(), named.secrets)
}

// config of a server in dir, as far as its data directory is concerned.
func (t *Template) config(dir string, n config.Node) mysqld.Config {
	return mysqld.Config{Binary: t.binary, Dir: dir, Port: n.MySQL.Port, ServerID: 1, OSUser: n.MySQL.OSUser,
		Extra: n.MySQL.Options,
		Admin: mysqld.Account(t.secrets.Admin), Repl: mysqld.Account(t.secrets.Repl), Clone: mysqld.Account(t.secrets.Clone)}
}

// fill gives a node that has never run its data directory.
func (t *Template) fill(ctx context.Context, n config.Node) error {
	return mysqld.InitializeFrom(ctx, t.config(n.MySQLDir(), n), t.dir)
}
