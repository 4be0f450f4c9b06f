package demo

import (
	"context"
	"database/sql"
	"time"

	"github.com/go-sql-driver/mysql"

	"trireme/internal/base/config"
	"trireme/internal/mysql/mysqld"
)

// makeAccount makes the account of demo.json on the leader.
func (c *Cluster) makeAccount(ctx context.Context, n *Node) error {
	db, err := c.Admin(n)
	if err != nil {
		return err
	}
	defer db.Close()
	s := c.State()
	return mysqld.MakeAppAccount(ctx, db, s.User, s.Password)
}

// Admin opens a data node's mysqld as Trireme's own administrator, over its unix socket. Its sessions write to the
// binary log like any other.
func (c *Cluster) Admin(n *Node) (*sql.DB, error) {
	secrets, err := config.LoadSecrets(n.Dir)
	if err != nil {
		return nil, err
	}
	cfg := mysql.NewConfig()
	cfg.User, cfg.Passwd, cfg.Net, cfg.Addr = secrets.Admin.User, secrets.Admin.Password, "unix", c.socket(n)
	cfg.Timeout, cfg.ReadTimeout, cfg.WriteTimeout = 5*time.Second, 30*time.Second, 30*time.Second
	connector, err := mysql.NewConnector(cfg)
	if err != nil {
		return nil, err
	}
	return sql.OpenDB(connector), nil
}

func (c *Cluster) socket(n *Node) string {
	for _, s := range c.State().Nodes {
		if s.Name == n.Name && s.MySQLSocket != nil {
			return *s.MySQLSocket
		}
	}
	return ""
}
