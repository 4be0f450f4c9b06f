package mysqld

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"trireme/internal/base/durable"
)

// PlainFile is the option file with which this directory's mysqld is a server of its own, once the cluster was left.
func (c Config) PlainFile() string { return filepath.Join(c.Dir, "my.cnf-plain") }

// PlainBinlogDir holds the binary log of the plain server, which starts with a new one: the binary log of Trireme's is
// of one incarnation.
func (c Config) PlainBinlogDir() string { return filepath.Join(c.Dir, "binlog-plain") }

// PlainCommand starts the plain server in the foreground.
func (c Config) PlainCommand() []string {
	return []string{c.Binary.Path, "--defaults-file=" + c.PlainFile()}
}

// plainOptions is the text of PlainFile: the operator's options, and what makes a server of a replication set with
// GTIDs. A replica is read-only and starts replicating by itself.
func (c Config) plainOptions(source bool) string {
	c.TLS = nil // nothing would renew it
	var b strings.Builder
	b.WriteString(
		"# Written by `trireme leave`: the settings of this server without Trireme. It is yours to edit.\n[mysqld]\n")
	line := func(name, value string) { b.WriteString(optionLine(name, value)) }
	for _, s := range c.defaults() {
		line(s.name, s.value)
	}
	for _, name := range slices.Sorted(maps.Keys(c.Extra)) {
		line(name, c.Extra[name])
	}
	for _, s := range c.placeSettings() {
		switch s.name {
		case "log_bin":
			s.value = filepath.Join(c.PlainBinlogDir(), "binlog")
		case "log_bin_index":
			s.value = filepath.Join(c.PlainBinlogDir(), "binlog.index")
		}
		line(s.name, s.value)
	}
	readOnly := "ON"
	if source {
		readOnly = "OFF"
	}
	for _, o := range [][2]string{
		{"gtid_mode", "ON"}, {"enforce_gtid_consistency", "ON"}, {"binlog_format", "ROW"}, {"log_replica_updates", "ON"},
		{"relay_log_recovery", "ON"}, {"replica_preserve_commit_order", "ON"}, {"sync_binlog", "1"},
		{"innodb_flush_log_at_trx_commit", "1"}, {"partial_revokes", "ON"}, {"event_scheduler", "ON"},
		{"read_only", readOnly}, {"super_read_only", readOnly},
	} {
		line(o[0], o[1])
	}
	switch {
	case c.OSUser != "":
		line("user", c.OSUser)
	case os.Getuid() == 0:
		line("user", "root")
	}
	return b.String()
}

// WritePlain writes PlainFile, makes an empty folder for the binary log, and has the next start make a fresh
// server_uuid, as every start does (S5). Otherwise a source that is killed before it has recorded what only its binary
// log has (an account statement that changed nothing, for example) would give those numbers to new transactions, and
// its replicas would skip them. A running server does not read auto.cnf; Start writes it again.
func (c Config) WritePlain(source bool) error {
	uid, gid, err := c.owner()
	if err != nil {
		return err
	}
	if err := MkdirOwned(c.Dir, filepath.Base(c.PlainBinlogDir()), 0o750, uid, gid); err != nil {
		return err
	}
	if err := emptyDir(c.PlainBinlogDir()); err != nil {
		return err
	}
	if err := os.Remove(filepath.Join(c.DataDir(), "auto.cnf")); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := durable.SyncDir(c.DataDir()); err != nil {
		return err
	}
	return durable.WriteFile(c.PlainFile(), []byte(c.plainOptions(source)), 0o600)
}

// ExecPlain turns this process into the plain server: a service manager that runs the daemon then runs mysqld, under
// the same process id, and nothing has to outlive anything. It returns only on an error.
func (c Config) ExecPlain() error {
	if err := os.Chdir("/"); err != nil {
		return err
	}
	fallBehind(os.Getpid())
	return fmt.Errorf("%s: %w", strings.Join(c.PlainCommand(), " "), syscall.Exec(c.Binary.Path, c.PlainCommand(),
		environment()))
}

// MakeReplAccount makes user@'%' for plain replicas of this server. The statements are logged: it is for a leader.
func (a *Admin) MakeReplAccount(ctx context.Context, acct Account) error {
	who := quote(acct.User) + "@'%'"
	return limit(ctx, slowLimit, "make the account of replicas", func(ctx context.Context) error {
		for _, q := range []string{
			"DROP USER IF EXISTS " + who,
			"CREATE USER " + who + " IDENTIFIED WITH caching_sha2_password BY " + quote(acct.Password) +
				" REQUIRE SSL PASSWORD EXPIRE NEVER",
			"GRANT REPLICATION SLAVE ON *.* TO " + who,
		} {
			if err := a.app.exec(ctx, q); err != nil {
				return err
			}
		}
		return nil
	})
}

// SetPassword replaces that of one of Trireme's accounts for other hosts, user@'%'. The statement is logged: it is for
// a leader.
func (a *Admin) SetPassword(ctx context.Context, acct Account) error {
	return limit(ctx, slowLimit, "replace the password of "+acct.User, func(ctx context.Context) error {
		return a.app.exec(ctx, "ALTER USER IF EXISTS "+quote(acct.User)+"@'%' IDENTIFIED WITH caching_sha2_password BY "+
			quote(acct.Password))
	})
}

// DropReplAccount takes it away again.
func (a *Admin) DropReplAccount(ctx context.Context, user string) error {
	return limit(ctx, slowLimit, "drop the account of replicas", func(ctx context.Context) error {
		return a.app.exec(ctx, "DROP USER IF EXISTS "+quote(user)+"@'%'")
	})
}

// SavedGTIDs is what mysql.gtid_executed holds, as a GTID set: what a start without the present binary log finds
// executed. A commit gets there a moment later (InnoDB's background thread), an XA PREPARE of the applier never.
func (a *Admin) SavedGTIDs(ctx context.Context) (string, error) {
	tag := "''"
	if a.cfg.Binary.Version.AtLeast(8, 3, 0) {
		tag = "gtid_tag"
	}
	var set []string
	err := limit(ctx, quickLimit, "read mysql.gtid_executed", func(ctx context.Context) error {
		t, err := a.status.query(ctx, "SELECT source_uuid, "+tag+
			" AS tag, interval_start, interval_end FROM mysql.gtid_executed")
		for _, r := range t {
			sid := r["source_uuid"]
			if r["tag"] != "" {
				sid += ":" + r["tag"]
			}
			set = append(set, sid+":"+r["interval_start"]+"-"+r["interval_end"])
		}
		return err
	})
	return strings.Join(set, ","), err
}

// ForgetSource ends replication, and forgets where it came from.
func (a *Admin) ForgetSource(ctx context.Context) error {
	if err := a.StopReplica(ctx); err != nil {
		return err
	}
	return limit(ctx, slowLimit, "forget the source of replication", func(ctx context.Context) error {
		return a.channel.exec(ctx, "RESET REPLICA ALL")
	})
}

// ConfigurePlain points the receiver at a plain source, for the next start of the server: it is not started here.
// Replication must be stopped.
func (a *Admin) ConfigurePlain(ctx context.Context, ch Channel) error {
	return limit(ctx, slowLimit, "configure plain replication", func(ctx context.Context) error {
		if err := a.channel.exec(ctx, "RESET REPLICA ALL"); err != nil {
			return err
		}
		return a.channel.exec(ctx, "CHANGE REPLICATION SOURCE TO SOURCE_HOST="+quote(ch.Host)+", SOURCE_PORT="+
			strconv.Itoa(ch.Port)+
			", SOURCE_USER="+quote(ch.Account.User)+", SOURCE_PASSWORD="+quote(ch.Account.Password)+
			", SOURCE_AUTO_POSITION=1, SOURCE_SSL=1, SOURCE_CONNECT_RETRY=2, SOURCE_RETRY_COUNT=0")
	})
}
