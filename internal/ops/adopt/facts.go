package adopt

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"trireme/internal/mysql/gtid"
	"trireme/internal/mysql/mysqld"
)

// facts are everything that the checks look at. They are read once; the checks themselves are pure.
type facts struct {
	Version  mysqld.Version
	UUID     string
	Vars     map[string]string // of all global variables
	Sources  map[string]string // variable -> where its value comes from, of those that somebody has set
	Loadable []string          // plugins and components that are not built in: names in lower case
	Executed gtid.Set

	Tables    []string // whose engine cannot roll back, as schema.table (engine)
	Outside   []string // files outside of the data directory
	Encrypted []string // tablespaces
	Keyring   []string
	Channels  []channel
	Group     int // members of a replication group
	Prepared  int // XA transactions
	Filters   []string
	Events    int      // that are enabled
	Strong    []string // accounts that can break the promises
	Dumpers   []string // accounts with REPLICATION SLAVE, without SUPER, as SQL names them
	Supers    []string // of the users that replicas use now: those with SUPER
	Connected []string // server_uuids of the replicas that are connected
	Readers   []string // user@host of everybody who reads the binary log, replicas included
	OldNames  bool     // the semi-sync plugins have their names from before 8.0.26

	// Of this host.
	Process   mysqld.Foreign
	Local     bool   // the server's process was found here
	SameFS    bool   // the data directory can be renamed to the node's directory
	Mounted   bool   // the data directory is a mount point
	Reachable string // why the data directory cannot be renamed by us; empty: it can
	Binary    mysqld.Binary
	BinaryErr string
	OptionErr string // what mysqld says of the settings that it would get
	Ports     []string
}

func (f *facts) on(name string) bool { return f.Vars[name] == "ON" || f.Vars[name] == "1" }

// readFacts reads what the server says.
func readFacts(ctx context.Context, s *server) (*facts, error) {
	f := &facts{Vars: map[string]string{}, Sources: map[string]string{}}
	rows, err := s.rows(ctx, "SELECT VARIABLE_NAME AS n, VARIABLE_VALUE AS v FROM performance_schema.global_variables")
	if err != nil {
		return nil, err
	}
	for _, r := range rows {
		f.Vars[strings.ToLower(r["n"])] = r["v"]
	}
	if f.Version, err = mysqld.ParseVersion(f.Vars["version"]); err != nil {
		return nil, err
	}
	if strings.Contains(f.Vars["version"], "MariaDB") {
		return nil, fmt.Errorf("%w: %s", mysqld.ErrMariaDB, s.login.addr())
	}
	if !f.Version.AtLeast(mysqld.Minimum.Major, mysqld.Minimum.Minor, mysqld.Minimum.Patch) {
		return nil, fmt.Errorf("%w: %s is MySQL %s, Trireme needs %s: upgrade it first", mysqld.ErrTooOld, s.login.addr(),
			f.Version, mysqld.Minimum)
	}
	f.UUID = f.Vars["server_uuid"]
	rows, err = s.rows(ctx,
		"SELECT VARIABLE_NAME AS n, VARIABLE_SOURCE AS v FROM performance_schema.variables_info WHERE VARIABLE_SOURCE <> 'COMPILED'")
	if err != nil {
		return nil, err
	}
	for _, r := range rows {
		f.Sources[strings.ToLower(r["n"])] = r["v"]
	}
	if f.Executed, err = gtid.ParseSet(f.Vars["gtid_executed"]); err != nil {
		return nil, err
	}
	for _, read := range []func(context.Context, *server) error{f.readData, f.readReplication, f.readAccounts} {
		if err := read(ctx, s); err != nil {
			return nil, err
		}
	}
	return f, nil
}

const userSchemas = "TABLE_SCHEMA NOT IN ('mysql','sys','information_schema','performance_schema')"

func (f *facts) readData(ctx context.Context, s *server) error {
	var absolute []string
	lists := []struct {
		to *[]string
		q  string
	}{
		{&f.Tables, "SELECT CONCAT(TABLE_SCHEMA, '.', TABLE_NAME, ' (', ENGINE, ')') AS v FROM information_schema.TABLES" +
			" WHERE TABLE_TYPE = 'BASE TABLE' AND ENGINE <> 'InnoDB' AND " + userSchemas + " ORDER BY 1"},
		{&absolute,
			"SELECT FILE_NAME AS v FROM information_schema.FILES WHERE FILE_NAME LIKE '/%' AND FILE_TYPE <> 'TEMPORARY' ORDER BY 1"},
		{&f.Encrypted, "SELECT NAME AS v FROM information_schema.INNODB_TABLESPACES WHERE ENCRYPTION = 'Y' ORDER BY 1"},
		{&f.Loadable, "SELECT LOWER(PLUGIN_NAME) AS v FROM information_schema.PLUGINS WHERE PLUGIN_LIBRARY IS NOT NULL" +
			" UNION SELECT LOWER(SUBSTRING_INDEX(COMPONENT_URN, 'component_', -1)) FROM mysql.component"},
		{&f.Keyring,
			"SELECT PLUGIN_NAME AS v FROM information_schema.PLUGINS WHERE PLUGIN_NAME LIKE 'keyring%' AND PLUGIN_STATUS = 'ACTIVE'"},
	}
	for _, l := range lists {
		var err error
		if *l.to, err = s.column(ctx, l.q); err != nil {
			return err
		}
	}
	f.Outside = absolute
	// The keyring's view came with 8.0.24; without a component it is empty.
	if ks, err := s.column(ctx,
		"SELECT STATUS_VALUE AS v FROM performance_schema.keyring_component_status WHERE STATUS_KEY = 'Component_name'"); err == nil {
		f.Keyring = append(f.Keyring, ks...)
	}
	x, err := s.rows(ctx, "XA RECOVER")
	f.Prepared = len(x)
	return err
}

func (f *facts) readReplication(ctx context.Context, s *server) (err error) {
	if f.Channels, err = s.channels(ctx); err != nil {
		return err
	}
	group, err := s.column(ctx,
		"SELECT MEMBER_ID AS v FROM performance_schema.replication_group_members WHERE MEMBER_STATE <> 'OFFLINE'")
	if err != nil {
		return err
	}
	f.Group = len(group)
	if f.Filters, err = s.column(ctx,
		"SELECT DISTINCT CONCAT(FILTER_NAME, '=', FILTER_RULE) AS v FROM performance_schema.replication_applier_global_filters"+
			" UNION SELECT DISTINCT CONCAT(FILTER_NAME, '=', FILTER_RULE) FROM performance_schema.replication_applier_filters"); err != nil {
		return err
	}
	status, err := s.rows(ctx, binlogStatus(f.Version))
	if err != nil {
		return err
	}
	for _, r := range status {
		for _, k := range []string{"binlog_do_db", "binlog_ignore_db"} {
			if r[k] != "" {
				f.Filters = append(f.Filters, k+"="+r[k])
			}
		}
	}
	events, err := s.column(ctx, "SELECT EVENT_NAME AS v FROM information_schema.EVENTS WHERE STATUS = 'ENABLED'")
	if err != nil {
		return err
	}
	f.Events = len(events)
	f.OldNames = slices.ContainsFunc(f.Loadable,
		func(p string) bool { return p == "rpl_semi_sync_master" || p == "rpl_semi_sync_slave" })
	f.Connected, err = s.replicaUUIDs(ctx)
	return err
}

func (s *server) replicaUUIDs(ctx context.Context) ([]string, error) {
	rows, err := s.rows(ctx, "SHOW REPLICAS")
	var all []string
	for _, r := range rows {
		all = append(all, r["replica_uuid"])
	}
	return all, err
}

func (f *facts) readAccounts(ctx context.Context, s *server) error {
	rows, err := s.rows(ctx, "SELECT GRANTEE AS v, PRIVILEGE_TYPE AS p FROM information_schema.USER_PRIVILEGES ORDER BY 1")
	if err != nil {
		return err
	}
	for _, r := range rows {
		reserved := strings.HasPrefix(r["v"], "'mysql.") || strings.HasPrefix(r["v"], "'trireme_")
		if !reserved && mysqld.Dangerous(r["p"]) && !slices.Contains(f.Strong, r["v"]) {
			f.Strong = append(f.Strong, r["v"])
		}
	}
	rows, err = s.rows(ctx,
		"SELECT CONCAT(QUOTE(User), '@', QUOTE(Host)) AS v, User AS u, Super_priv AS super FROM mysql.user"+
			" WHERE Repl_slave_priv = 'Y' AND account_locked = 'N' AND User NOT LIKE 'trireme\\_%' ORDER BY 1")
	if err != nil {
		return err
	}
	dumps, err := s.rows(ctx,
		"SELECT USER AS u, CONCAT(USER, '@', HOST) AS v FROM performance_schema.processlist WHERE COMMAND LIKE 'Binlog Dump%' ORDER BY 2")
	if err != nil {
		return err
	}
	var users []string
	for _, d := range dumps {
		users, f.Readers = append(users, d["u"]), append(f.Readers, d["v"])
	}
	for _, r := range rows {
		switch {
		case r["super"] == "N":
			f.Dumpers = append(f.Dumpers, r["v"])
		case slices.Contains(users, r["u"]):
			f.Supers = append(f.Supers, r["v"])
		}
	}
	return nil
}

// readHost looks at what the server is on this host, and whether its data can become the node's.
func (f *facts) readHost(dir string) error {
	data := filepath.Clean(f.Vars["datadir"])
	st, err := os.Stat(data)
	if err != nil {
		f.Reachable = err.Error()
		return nil
	}
	// Another host may have a folder of this name: the server's own process must be in it.
	if f.Process, f.Local, err = mysqld.OnData(data); err != nil || !f.Local {
		return err
	}
	if !st.IsDir() {
		f.Reachable = data + " is not a folder"
		return nil
	}
	real, err := filepath.EvalSymlinks(data)
	if err != nil {
		return err
	}
	parent := filepath.Dir(real)
	f.Mounted = device(real) != device(parent)
	f.SameFS = device(real) == device(existing(dir))
	if err := unix.Access(parent, unix.W_OK|unix.X_OK); err != nil {
		f.Reachable = fmt.Sprintf("%s: %v", parent, err)
	}
	return nil
}

// device of the file system that a path is on; 0: not known.
func device(path string) uint64 {
	var st unix.Stat_t
	if unix.Stat(path, &st) != nil {
		return 0
	}
	return uint64(st.Dev)
}

// existing is the part of a path that is there.
func existing(path string) string {
	for {
		if _, err := os.Stat(path); err == nil || path == filepath.Dir(path) {
			return path
		}
		path = filepath.Dir(path)
	}
}
