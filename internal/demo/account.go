package demo

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/go-sql-driver/mysql"

	"trireme/internal/config"
)

// deniedToApplications are the privileges with which an account could make mysqld release commits that Raft has not
// confirmed, or change what the daemon owns.
var deniedToApplications = []string{
	"SUPER", "SHUTDOWN", "RELOAD", "REPLICATION SLAVE", "REPLICATION CLIENT", "FILE", "CREATE TABLESPACE",
	"SYSTEM_VARIABLES_ADMIN", "SESSION_VARIABLES_ADMIN", "PERSIST_RO_VARIABLES_ADMIN", "BINLOG_ADMIN", "BINLOG_ENCRYPTION_ADMIN",
	"REPLICATION_SLAVE_ADMIN", "REPLICATION_APPLIER", "GROUP_REPLICATION_ADMIN", "GROUP_REPLICATION_STREAM", "CONNECTION_ADMIN", "BACKUP_ADMIN", "CLONE_ADMIN",
	"INNODB_REDO_LOG_ARCHIVE", "INNODB_REDO_LOG_ENABLE", "SYSTEM_USER", "SERVICE_CONNECTION_ADMIN", "ENCRYPTION_KEY_ADMIN",
}

// makeAccount makes the account of demo.json on the leader, over its unix socket as Trireme's own administrator.
func (c *Cluster) makeAccount(ctx context.Context, n *Node) error {
	db, err := c.Admin(n)
	if err != nil {
		return err
	}
	defer db.Close()
	conn, err := db.Conn(ctx)
	if err != nil {
		return fmt.Errorf("administrator's login to %s: %w", n.Name, err)
	}
	defer conn.Close()
	s := c.State()
	who := s.User + "@'%'"
	statements := []string{
		"CREATE USER " + who + " IDENTIFIED BY '" + s.Password + "'",
		"GRANT ALL ON *.* TO " + who + " WITH GRANT OPTION",
	}
	for _, p := range deniedToApplications {
		statements = append(statements, "REVOKE IF EXISTS "+p+" ON *.* FROM "+who+" IGNORE UNKNOWN USER")
	}
	// Everything but reading: who can write to the grant tables can give himself the rest.
	statements = append(statements, "REVOKE INSERT, UPDATE, DELETE, CREATE, DROP, ALTER, INDEX, REFERENCES, CREATE VIEW, TRIGGER, CREATE ROUTINE, ALTER ROUTINE, EVENT, "+
		"LOCK TABLES, CREATE TEMPORARY TABLES, EXECUTE ON mysql.* FROM "+who)
	for _, st := range statements {
		if _, err := conn.ExecContext(ctx, st); err != nil {
			return fmt.Errorf("making account %s: %.70s: %w", who, st, err)
		}
	}
	return nil
}

// Admin opens a data node's mysqld as Trireme's own administrator, over its unix socket. Its sessions write to the binary log
// like any other.
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
