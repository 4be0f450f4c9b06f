package backup

import (
	"context"
	"database/sql"
	"fmt"
	"net"
	"slices"
	"strings"

	"github.com/go-sql-driver/mysql"

	"trireme/internal/mysql/mysqld"
)

// serverID of the servers that this package starts: no node has it, raft ids end at config.MaxMemberID.
const serverID = 1<<20 + 2

// withSQL runs statements on the server of cfg, one after the other in one session.
func withSQL(ctx context.Context, cfg mysqld.Config, as mysqld.Account, statements ...string) error {
	db, err := openSQL(cfg, as)
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	conn, err := db.Conn(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	for _, q := range statements {
		if _, err := conn.ExecContext(ctx, q); err != nil {
			// It may hold a password: only its first words are shown.
			words := strings.Fields(q)
			return fmt.Errorf("%s …: %w", strings.Join(words[:min(3, len(words))], " "), err)
		}
	}
	return nil
}

// Trireme's own accounts, of any host; and others that may change accounts, files or settings, as SQL names both.
const (
	ownAccounts = "SELECT CONCAT(QUOTE(User), '@', QUOTE(Host)) AS who FROM mysql.user" +
		" WHERE User IN ('trireme_admin', 'trireme_repl', 'trireme_clone', 'trireme_restore') ORDER BY 1"
	allPrivileges = "SELECT GRANTEE AS who, PRIVILEGE_TYPE AS privilege FROM information_schema.USER_PRIVILEGES ORDER BY 1"
	// Accounts that may change the tables which say what accounts may do.
	grantTables = "SELECT GRANTEE AS who FROM information_schema.SCHEMA_PRIVILEGES WHERE 'mysql' LIKE TABLE_SCHEMA" +
		changing +
		" UNION SELECT GRANTEE FROM information_schema.TABLE_PRIVILEGES WHERE TABLE_SCHEMA = 'mysql'" + changing +
		" UNION SELECT GRANTEE FROM information_schema.COLUMN_PRIVILEGES WHERE TABLE_SCHEMA = 'mysql'" + changing +
		" ORDER BY 1"
	changing = " AND PRIVILEGE_TYPE NOT IN ('SELECT', 'SHOW VIEW', 'LOCK TABLES', 'REFERENCES')"
	// Who may be whom: by a role, or as a proxy.
	standIns = "SELECT CONCAT('''', TO_USER, '''@''', TO_HOST, '''') AS who," +
		" CONCAT('''', FROM_USER, '''@''', FROM_HOST, '''') AS role" +
		" FROM mysql.role_edges UNION SELECT CONCAT('''', User, '''@''', Host, '''')," +
		" CONCAT('''', Proxied_user, '''@''', Proxied_host, '''')" +
		" FROM mysql.proxies_priv WHERE Proxied_user <> '' ORDER BY 1, 2"
	// mysqld's own accounts, which are locked.
	serversOwn = "SELECT CONCAT('''', User, '''@''', Host, '''') AS who FROM mysql.user WHERE account_locked = 'Y'" +
		" AND User IN ('mysql.infoschema', 'mysql.session', 'mysql.sys') AND Host = 'localhost'"
)

// accounts reads Trireme's own accounts, and others that are administrators.
func accounts(ctx context.Context, db *sql.DB) (own, administrators []string, err error) {
	rows, err := mysqld.ReadAll(ctx, db, ownAccounts)
	if err != nil {
		return nil, nil, err
	}
	for _, r := range rows {
		own = append(own, r["who"])
	}
	known := slices.Clone(own)
	if rows, err = mysqld.ReadAll(ctx, db, serversOwn); err != nil {
		return nil, nil, err
	}
	for _, r := range rows {
		known = append(known, r["who"])
	}
	add := func(who string) (added bool) {
		if added = !slices.Contains(known, who) && !slices.Contains(administrators, who); added {
			administrators = append(administrators, who)
		}
		return added
	}
	if rows, err = mysqld.ReadAll(ctx, db, allPrivileges); err != nil {
		return nil, nil, err
	}
	for _, r := range rows {
		if mysqld.Dangerous(r["privilege"]) || r["privilege"] == "CREATE USER" {
			add(r["who"])
		}
	}
	if rows, err = mysqld.ReadAll(ctx, db, grantTables); err != nil {
		return nil, nil, err
	}
	for _, r := range rows {
		add(r["who"])
	}
	if rows, err = mysqld.ReadAll(ctx, db, standIns); err != nil {
		return nil, nil, err
	}
	for more := true; more; {
		more = false
		for _, r := range rows {
			if slices.Contains(administrators, r["role"]) && add(r["who"]) {
				more = true
			}
		}
	}
	return own, administrators, nil
}

// openSQL opens the server of cfg.
func openSQL(cfg mysqld.Config, as mysqld.Account) (*sql.DB, error) {
	c := mysql.NewConfig()
	c.User, c.Passwd, c.Net, c.Addr, c.Timeout = as.User, as.Password, "unix", cfg.Socket(), sqlLimit
	connector, err := mysql.NewConnector(c)
	if err != nil {
		return nil, err
	}
	return sql.OpenDB(connector), nil
}

// freePort is one without a listener at this moment.
func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, fmt.Errorf("find a free port: %w", err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().(*net.TCPAddr).Port, nil
}
