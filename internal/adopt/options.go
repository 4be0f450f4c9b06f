package adopt

import (
	"maps"
	"slices"
	"strings"

	"trireme/internal/mysqld"
)

// OptionChange is what becomes of one option that somebody has set on the server.
type OptionChange struct {
	Name string `json:"name"`
	Old  string `json:"old"`
	New  string `json:"new"` // empty: it is not set any more
	Kept bool   `json:"kept"`
	Why  string `json:"why,omitempty"` // it is not kept
}

// keptDefaults are options whose value on the running server holds also where nobody has set it, since Trireme's own default differs and
// accounts or applications rest on it.
var keptDefaults = []string{"skip_name_resolve"}

// takeOver divides the server's options into those that go to mysql.options and those that Trireme sets or does without. What keeps its
// value anyway is in neither.
func takeOver(f *facts, cfg mysqld.Config) (taken map[string]string, changes []OptionChange) {
	taken = map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(f.Vars)) {
		value := f.Vars[name]
		_, set := f.Sources[name]
		fate := cfg.FateOf(name, value)
		keeps := set || slices.Contains(keptDefaults, name) && !fate.Same
		switch {
		case fate.Kept && set && (strings.HasPrefix(name, "slave_") || strings.HasPrefix(name, "master_")):
			changes = append(changes, OptionChange{Name: name, Old: value, Why: "replication is Trireme's, and this is an old name"})
		case fate.Kept && keeps && value != "":
			taken[optionName(f, name)] = value
			changes = append(changes, OptionChange{Name: name, Old: value, New: value, Kept: true})
		case fate.Kept && fate.Value != "" && !fate.Same:
			changes = append(changes, OptionChange{Name: name, Old: value, New: fate.Value, Why: "Trireme's default; mysql.options may change it"})
		case fate.Kept || fate.Same || fate.Value == "" && !set:
		default:
			changes = append(changes, OptionChange{Name: name, Old: value, New: fate.Value, Why: fate.Why})
		}
	}
	return taken, changes
}

// optionName is how the option is written in my.cnf: one of a plugin or a component is not known before that is loaded.
func optionName(f *facts, name string) string {
	loose := strings.Contains(name, ".")
	for _, p := range f.Loadable {
		loose = loose || strings.HasPrefix(name, p+"_")
	}
	if loose {
		return "loose_" + name
	}
	return name
}
