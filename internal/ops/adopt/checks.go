package adopt

import (
	"fmt"
	"slices"
	"strings"

	"trireme/internal/mysql/gtid"
	"trireme/internal/mysql/mysqld"
)

// Results of a check.
const (
	OK   = "ok"
	Warn = "warn" // it works; somebody should know
	Fail = "FAIL" // nothing is begun
)

// Check is one line of the table that a dry run prints.
type Check struct {
	Name   string `json:"check"`
	Result string `json:"result"`
	Found  string `json:"found"`
	Do     string `json:"do,omitempty"`
}

// remote is a replica as it looks from the source's host.
type remote struct {
	Addr     string
	UUID     string
	Version  mysqld.Version
	Executed gtid.Set // read before the source's
	Channels []channel
	Problem  string // it cannot be reached
}

// table collects checks.
type table struct{ checks []Check }

func (t *table) add(name, result, found, do string) {
	if result == OK {
		do = ""
	}
	t.checks = append(t.checks, Check{Name: name, Result: result, Found: found, Do: do})
}

// need adds a check that fails unless good.
func (t *table) need(name string, good bool, found, do string) {
	if good {
		t.add(name, OK, found, "")
		return
	}
	t.add(name, Fail, found, do)
}

// none adds a check that fails if the list has anything.
func (t *table) none(name string, list []string, do string) {
	if len(list) == 0 {
		t.add(name, OK, "none", "")
		return
	}
	t.add(name, Fail, some(list), do)
}

// some names the first of a list.
func some(list []string) string {
	const named = 5
	if len(list) <= named {
		return strings.Join(list, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(list[:named], ", "), len(list)-named)
}

// common are the checks of every server that is adopted. osUID is ours: 0 may do everything.
func common(f *facts, osUID int) []Check {
	t := &table{}
	v := f.Version.String()
	switch b := f.Binary.Version; {
	case f.BinaryErr != "":
		t.add("mysqld", Fail, f.BinaryErr, "name the program with --mysqld")
	case b.Series() != f.Version.Series() || b.Patch < f.Version.Patch:
		t.add("mysqld", Fail, fmt.Sprintf("the server is %s, %s is %s", v, f.Binary.Path, b),
			"give the same version with --mysqld; an upgrade is a step of its own")
	case !f.Version.Tested():
		t.add("mysqld", Warn, v, "Trireme is not tested with this series, only with "+mysqld.TestedSeries)
	default:
		t.add("mysqld", OK, v, "")
	}
	if !f.Local {
		t.add("this host", Fail, "no mysqld works in "+f.Vars["datadir"]+" here, or its process cannot be seen",
			"run adopt on the server's own host, as root or as its user")
	} else {
		process(t, f, osUID)
	}
	t.need("GTIDs", f.Vars["gtid_mode"] == "ON" && f.Vars["enforce_gtid_consistency"] == "ON",
		fmt.Sprintf("gtid_mode=%s, enforce_gtid_consistency=%s", f.Vars["gtid_mode"], f.Vars["enforce_gtid_consistency"]),
		"switch GTIDs on, on all servers: the manual's \"Enabling GTID Transactions Online\"")
	t.none("tables that cannot roll back", f.Tables, "ALTER TABLE … ENGINE=InnoDB on the source")
	outside := slices.Clone(f.Outside)
	for _, k := range []string{"innodb_data_home_dir", "innodb_undo_directory", "innodb_log_group_home_dir",
		"innodb_directories", "innodb_doublewrite_dir"} {
		if p := f.Vars[k]; strings.HasPrefix(p, "/") {
			outside = append(outside, k+"="+p)
		}
	}
	t.none("files outside of the data directory", outside,
		"move them into the data directory; seeding does not know of them")
	encrypted := slices.Concat(f.Encrypted, f.Keyring)
	for _, k := range []string{"binlog_encryption", "innodb_redo_log_encrypt", "innodb_undo_log_encrypt"} {
		if f.on(k) {
			encrypted = append(encrypted, k+"=ON")
		}
	}
	t.none("encryption at rest", encrypted, "decrypt, or encrypt the disk instead: Trireme does not handle keyrings")
	t.need("prepared XA transactions", f.Prepared == 0, fmt.Sprint(f.Prepared),
		"end each with XA COMMIT or XA ROLLBACK: see XA RECOVER")
	t.need("group replication", f.Group == 0, fmt.Sprintf("%d members", f.Group),
		"STOP GROUP_REPLICATION first: Trireme takes its place")
	t.none("replication filters", f.Filters,
		"every node must hold everything: remove the filters and bring the data together first")
	if f.OldNames {
		t.add("semi-sync plugins", Fail, "they have their old names",
			"UNINSTALL PLUGIN rpl_semi_sync_master, and rpl_semi_sync_slave: Trireme loads semisync_source.so")
	}
	if len(f.Strong) > 0 {
		t.add("accounts with dangerous rights", Warn, some(f.Strong),
			"use them for nothing but administration: docs/GUARANTEES.md, \"Tables and statements\"")
	}
	t.need("settings", f.OptionErr == "", orElse(f.OptionErr, "mysqld accepts them"),
		"correct or unset the option on the running server (RESET PERSIST, my.cnf)")
	t.none("ports in use", f.Ports,
		"choose others with --peer-port, --api-port, --rw-port, --ro-port, --split-port, --stream-port")
	return t.checks
}

func orElse(text, otherwise string) string {
	if text == "" {
		return otherwise
	}
	return text
}

// process checks the running server as this host sees it.
func process(t *table, f *facts, osUID int) {
	found := fmt.Sprintf("process %d", f.Process.Pid)
	switch {
	case osUID != 0 && osUID != f.Process.UID:
		t.add("this host", Fail, fmt.Sprintf("%s of user %d", found, f.Process.UID),
			"run adopt as root or as the user of mysqld")
	case f.Process.Unit != "":
		t.add("this host", Warn, found+", started by "+f.Process.Unit,
			"systemctl disable "+f.Process.Unit+", and mask it after adopt: it must not start the old server again")
	default:
		t.add("this host", OK, found, "")
	}
	data := f.Vars["datadir"]
	switch {
	case f.Reachable != "":
		t.add("data directory", Fail, f.Reachable, "run adopt as root")
	case f.Mounted:
		t.add("data directory", Fail, data+" is a mount point, and cannot be renamed",
			"mount that file system one folder higher and give --dir on it")
	case !f.SameFS:
		t.add("data directory", Fail, data+" is on another file system than the node's directory",
			"give --dir on the file system of the data: it is renamed, not copied")
	default:
		t.add("data directory", OK, data+" can be renamed", "")
	}
}

// source are the checks of the server that takes writes, and of its replicas.
func source(f *facts, reps []remote) []Check {
	t := &table{}
	t.need("binary log", f.on("log_bin") && f.Vars["binlog_format"] == "ROW",
		fmt.Sprintf("log_bin=%s, binlog_format=%s", f.Vars["log_bin"], f.Vars["binlog_format"]),
		"binlog_format=ROW, also for the sessions that are open now")
	for _, c := range f.Channels {
		if c.running() {
			t.add("source of the set", Fail, "it replicates from "+c.Source,
				"adopt the server at the top, which takes the writes")
		} else {
			t.add("source of the set", Warn, "it has a stopped channel from "+c.Source, "the adoption removes it")
		}
	}
	if f.Events > 0 {
		t.add("scheduled events", OK, fmt.Sprintf("%d enabled; they run on the leader", f.Events), "")
	}
	named := map[string]bool{}
	for _, r := range reps {
		named[r.UUID] = true
		t.checks = append(t.checks, replicaOf(f, r))
	}
	var unknown []string
	for _, id := range f.Connected {
		if !named[id] {
			unknown = append(unknown, id)
		}
	}
	if len(unknown) > 0 {
		t.add("other replicas", Fail, "connected, and not named: server_uuid "+some(unknown),
			"name each with --replica HOST:PORT, or STOP REPLICA there: no other server may read the leader's binary log any more")
	}
	if len(f.Readers) > len(f.Connected) {
		t.add("other readers of the binary log", Fail, some(f.Readers)+fmt.Sprintf("; %d of them are replicas",
			len(f.Connected)),
			"stop mysqlbinlog, change-data capture and the like: no other server may read the leader's binary log any more")
	}
	if len(f.Dumpers) > 0 {
		t.add("accounts of replicas", Warn, some(f.Dumpers),
			"they will be locked: a reader of the leader's binary log sees what is not committed yet")
	}
	if len(f.Supers) > 0 {
		t.add("accounts of replicas", Warn, some(f.Supers)+" replicates and has SUPER",
			"it is not locked: do not replicate with it any more")
	}
	return t.checks
}

// replicaOf checks one replica from the source's side.
func replicaOf(f *facts, r remote) Check {
	t := &table{}
	name := "replica " + r.Addr
	errant := r.Executed.Subtract(f.Executed)
	toApply := f.Executed.Subtract(r.Executed).Count()
	i := slices.IndexFunc(r.Channels, func(c channel) bool { return c.SourceUUID == f.UUID })
	switch {
	case r.Problem != "":
		t.add(name, Fail, r.Problem,
			"the account of --user is needed there too; or leave the replica out and STOP REPLICA there")
	case r.UUID == f.UUID:
		t.add(name, Fail, "it is the source itself", "name the replicas only")
	case !errant.Empty():
		t.add(name, Fail, "errant transactions: "+line(errant),
			"leave it out (STOP REPLICA there), and join an empty node in its place")
	case len(r.Channels) > 1:
		t.add(name, Fail, fmt.Sprintf("it replicates from %d sources", len(r.Channels)),
			"leave it out (STOP REPLICA there), and join an empty node in its place")
	case i < 0:
		t.add(name, Fail, "it does not replicate from this server", "name the direct replicas of the source only")
	case r.Channels[i].Error != "":
		t.add(name, Fail, "replication has an error: "+r.Channels[i].Error, "repair it first, or leave the replica out")
	case r.Channels[i].IO != "Yes" || r.Channels[i].SQL != "Yes":
		t.add(name, Fail, fmt.Sprintf("replication does not run: receiver %s, applier %s", r.Channels[i].IO,
			r.Channels[i].SQL), "START REPLICA, or leave it out")
	case r.Version.Series() != f.Version.Series():
		t.add(name, Warn, "it is MySQL "+r.Version.String(), "nodes of another series cannot be seeded from each other")
	default:
		t.add(name, OK, fmt.Sprintf("runs, %d transactions to apply", toApply), "")
	}
	return t.checks[0]
}

// replica are the checks of a server that joins with its data.
func replica(f *facts) []Check {
	t := &table{}
	switch {
	case len(f.Channels) > 1:
		t.add("replication", Fail, fmt.Sprintf("it replicates from %d sources", len(f.Channels)),
			"only what is in the adopted source can be in the cluster: join an empty node instead")
	case len(f.Channels) == 1 && f.Channels[0].Error != "":
		t.add("replication", Fail, f.Channels[0].Error, "join an empty node instead")
	case len(f.Channels) == 1 && f.Channels[0].running():
		t.add("replication", Warn, "it still runs, from "+f.Channels[0].Source,
			"adopt the source first, with --replica for this server")
	default:
		t.add("replication", OK, "stopped", "")
	}
	if len(f.Connected) > 0 {
		t.add("its own replicas", Fail, "server_uuid "+some(f.Connected), "STOP REPLICA there: a node's mysqld has none")
	}
	return t.checks
}

// failed are the checks that forbid to begin.
func failed(checks []Check) []Check {
	return slices.DeleteFunc(slices.Clone(checks), func(c Check) bool { return c.Result != Fail })
}
