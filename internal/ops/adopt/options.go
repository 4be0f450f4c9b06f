package adopt

import (
	"maps"
	"slices"
	"strings"

	"trireme/internal/mysql/mysqld"
)

// OptionChange is what becomes of one option that somebody has set on the server.
type OptionChange struct {
	Name string `json:"name"`
	Old  string `json:"old"`
	New  string `json:"new"` // empty: it is not set any more
	Kept bool   `json:"kept"`
	Why  string `json:"why,omitempty"` // it is not kept
}

// untracked are variables whose source MySQL does not know: it says COMPILED no matter who has set them (measured on
// 9.7.4). Each with MySQL's default, with which it need not be kept.
var untracked = map[string]string{"character_set_server": "utf8mb4", "collation_server": "utf8mb4_0900_ai_ci",
	"transaction_isolation": "REPEATABLE-READ",
	"time_zone":             "SYSTEM", "lower_case_table_names": "0"}

// ofSessions are variables that sessions set for themselves, such as our own (server.ready), with MySQL's defaults.
// After any session's SET their source is DYNAMIC, for all sessions and until a restart (measured on 9.7.4).
var ofSessions = map[string]string{"lock_wait_timeout": "31536000", "max_execution_time": "0",
	"sql_mode": "ONLY_FULL_GROUP_BY,STRICT_TRANS_TABLES,NO_ZERO_IN_DATE,NO_ZERO_DATE,ERROR_FOR_DIVISION_BY_ZERO," +
		"NO_ENGINE_SUBSTITUTION",
	"wait_timeout": "28800"}

// isSet reports whether the value of a variable is somebody's choice, or one on which accounts rest and which Trireme
// would choose otherwise.
func isSet(f *facts, name string, fate mysqld.Fate) bool {
	if normal, ok := untracked[name]; ok {
		return f.Vars[name] != normal
	}
	source, set := f.Sources[name]
	if normal, ok := ofSessions[name]; ok && source == "DYNAMIC" && f.Vars[name] == normal {
		return false
	}
	return set || name == "skip_name_resolve" && !fate.Same
}

// takeOver divides the server's options into those that go to mysql.options and those that Trireme sets or does
// without. What keeps its value anyway is in neither.
func takeOver(f *facts, cfg mysqld.Config) (taken map[string]string, changes []OptionChange) {
	taken = map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(f.Vars)) {
		value := f.Vars[name]
		fate := cfg.FateOf(name, value)
		set := isSet(f, name, fate)
		switch {
		case name == "ssl_cert" && value != "" && !set:
			changes = append(changes, OptionChange{Name: name, Old: value, New: "of the cluster's CA",
				Why: "clients that verify the certificate need tls/ca.pem of any node from then on (docs/ops/certificates.md)"})
		case fate.Kept && set && (strings.HasPrefix(name, "slave_") || strings.HasPrefix(name, "master_")):
			changes = append(changes,
				OptionChange{Name: name, Old: value, Why: "replication is Trireme's, and this is an old name"})
		case fate.Kept && set && value != "":
			taken[optionName(f, name)] = value
			changes = append(changes, OptionChange{Name: name, Old: value, New: value, Kept: true})
		case fate.Kept && fate.Value != "" && !fate.Same:
			changes = append(changes, OptionChange{Name: name, Old: value, New: fate.Value,
				Why: "Trireme's default; mysql.options may change it"})
		case fate.Kept || fate.Same || fate.Value == "" && !set:
		default:
			changes = append(changes, OptionChange{Name: name, Old: value, New: fate.Value, Why: fate.Why})
		}
	}
	return taken, changes
}

// optionName is how the option is written in my.cnf: one of a plugin or a component is not known before that is loaded.
func optionName(f *facts, name string) string {
	if name == "time_zone" {
		return "default_time_zone"
	}
	loose := strings.Contains(name, ".")
	for _, p := range f.Loadable {
		loose = loose || strings.HasPrefix(name, p+"_")
	}
	if loose {
		return "loose_" + name
	}
	return name
}
