package mysqld

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"
)

// deniedPrivileges are what an application account never gets: each could release a waiting commit, move GTIDs, write
// past super_read_only, or dump transactions that Raft has not committed. A trailing * stands for any rest.
var deniedPrivileges = []string{
	"SUPER", "SHUTDOWN", "RELOAD", "FILE", "SYSTEM_USER",
	"SYSTEM_VARIABLES_ADMIN", "SESSION_VARIABLES_ADMIN", "PERSIST_*", "SENSITIVE_VARIABLES_*",
	"BINLOG_*", "REPLICATION*", "GROUP_REPLICATION_*", "TRANSACTION_GTID_TAG",
	"CONNECTION_ADMIN", "SERVICE_CONNECTION_ADMIN", "BACKUP_ADMIN", "CLONE_ADMIN", "INNODB_REDO_LOG_*",
	"FLUSH_TABLES", "FLUSH_STATUS", "FLUSH_PRIVILEGES", "FLUSH_OPTIMIZER_COSTS", "FLUSH_USER_RESOURCES",
	"FIREWALL_EXEMPT", "AUDIT_ABORT_EXEMPT",
	// Not privileges of their own: USAGE grants nothing, PROXY and GRANT OPTION are granted in other ways.
	"USAGE", "PROXY", "GRANT OPTION",
}

// schemaMySQLWrites are taken away on schema mysql: CREATE USER and GRANT work without them.
const schemaMySQLWrites = "INSERT, UPDATE, DELETE, CREATE, DROP, REFERENCES, INDEX, ALTER, CREATE TEMPORARY TABLES, LOCK TABLES," +
	" CREATE VIEW, CREATE ROUTINE, ALTER ROUTINE, EVENT, TRIGGER"

func denied(privilege string) bool {
	p := strings.ToUpper(privilege)
	return slices.ContainsFunc(deniedPrivileges, func(d string) bool {
		stem, any := strings.CutSuffix(d, "*")
		return p == d || any && strings.HasPrefix(p, stem)
	})
}

// MakeAppAccount makes user@'%' or brings it up to date: everything ON *.* WITH GRANT OPTION less what would let it
// break the cluster's promises. db is the leader's, opened as Trireme's administrator, with a session that logs: the
// account is replicated. It returns once Raft has it.
func MakeAppAccount(ctx context.Context, db *sql.DB, user, password string) error {
	privileges, err := ReadAll(ctx, db, "SHOW PRIVILEGES")
	if err != nil {
		return fmt.Errorf("make account %s: privileges of this server: %w", user, err)
	}
	var grants []string
	for _, r := range privileges {
		if p := r["privilege"]; !denied(p) {
			grants = append(grants, p)
		}
	}
	known, err := ReadAll(ctx, db, "SELECT User FROM mysql.user WHERE User = "+quote(user)+" AND Host = '%'")
	if err != nil {
		return fmt.Errorf("make account %s: %w", user, err)
	}
	verb := "CREATE"
	if len(known) > 0 {
		verb = "ALTER"
	}
	who := quote(user) + "@'%'"
	for _, q := range []string{
		verb + " USER " + who + " IDENTIFIED WITH caching_sha2_password BY " + quote(password),
		"GRANT " + strings.Join(grants, ", ") + " ON *.* TO " + who + " WITH GRANT OPTION",
		"REVOKE " + schemaMySQLWrites + " ON mysql.* FROM " + who,
	} {
		if _, err := db.ExecContext(ctx, q); err != nil {
			// The statement holds the password: only its first words are shown.
			return fmt.Errorf("make account %s: %s …: %w", user, strings.Join(strings.Fields(q)[:2], " "), err)
		}
	}
	return nil
}

// Dangerous reports whether an account with a privilege can break the cluster's promises: it is one of those that
// MakeAppAccount never gives.
func Dangerous(privilege string) bool {
	switch strings.ToUpper(privilege) {
	case "USAGE", "PROXY", "GRANT OPTION":
		return false
	}
	return denied(privilege)
}
