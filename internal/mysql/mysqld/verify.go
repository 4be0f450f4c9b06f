package mysqld

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Check verifies on the running server what Start asked for: version, identity, settings, engines, and that every user
// table can be rolled back. uuid is this incarnation's. Errors: ErrWrongSettings, ErrNonTransaction.
func (a *Admin) Check(ctx context.Context, uuid string) error {
	if err := a.checkIdentity(ctx, uuid); err != nil {
		return err
	}
	if err := a.VerifySettings(ctx); err != nil {
		return err
	}
	return a.checkTables(ctx)
}

func (a *Admin) checkIdentity(ctx context.Context, uuid string) error {
	v, err := a.globals(ctx, "version", "server_uuid", "server_id", "log_bin", "super_read_only")
	if err != nil {
		return err
	}
	for _, w := range []struct{ name, got, want string }{
		{"server_uuid", v[1], uuid},
		{"server_id", v[2], fmt.Sprint(a.cfg.ServerID)},
		{"log_bin", v[3], "ON"},
		{"super_read_only", v[4], "ON"},
	} {
		if !sameValue(w.got, w.want) {
			return fmt.Errorf("%w: %s is %q and must be %q", ErrWrongSettings, w.name, w.got, w.want)
		}
	}
	running, err := ParseVersion(v[0])
	if err != nil {
		return err
	}
	if !running.AtLeast(Minimum.Major, Minimum.Minor, Minimum.Patch) {
		return fmt.Errorf("%w: the server says %s", ErrTooOld, v[0])
	}
	return nil
}

// VerifySettings checks the settings that hold for every role.
func (a *Admin) VerifySettings(ctx context.Context) error { return a.verify(ctx, alwaysSettings) }

// VerifyLeaderSettings checks all on which a commit's wait for Raft depends (S4). It is called before writes open, in
// every incarnation: somebody with SUPER may have changed what my.cnf set.
func (a *Admin) VerifyLeaderSettings(ctx context.Context) error {
	if err := a.verify(ctx, slices.Concat(alwaysSettings, leaderSettings)); err != nil {
		return err
	}
	return limit(ctx, quickLimit, "check the semi-sync plugin", func(ctx context.Context) error {
		var status string
		err := a.status.row(ctx, []any{&status},
			"SELECT PLUGIN_STATUS FROM information_schema.PLUGINS WHERE PLUGIN_NAME = 'rpl_semi_sync_source'")
		if err == nil && status != "ACTIVE" {
			err = fmt.Errorf("%w: plugin rpl_semi_sync_source is %s", ErrWrongSettings, status)
		}
		return err
	})
}

// verify compares running values with settings, and names every difference.
func (a *Admin) verify(ctx context.Context, settings []setting) error {
	names := make([]string, len(settings))
	for i, s := range settings {
		names[i] = s.name
	}
	got, err := a.globals(ctx, names...)
	if err != nil {
		return err
	}
	var wrong []error
	for i, s := range settings {
		if !sameValue(got[i], s.value) {
			wrong = append(wrong, fmt.Errorf("%s is %q and must be %q, because %s", s.name, got[i], s.value, s.why))
		}
	}
	if wrong != nil {
		return fmt.Errorf("%w: %w", ErrWrongSettings, errors.Join(wrong...))
	}
	return nil
}

// systemSchemas hold no user's tables.
const systemSchemas = "('mysql','sys','information_schema','performance_schema')"

const namedTables = 10 // in an error message

// checkTables names user tables whose engine cannot roll back: after a crash they would differ from node to node (S5).
func (a *Admin) checkTables(ctx context.Context) error {
	return limit(ctx, tableLimit, "check table engines", func(ctx context.Context) error {
		t, err := a.bulk.query(ctx, "SELECT TABLE_SCHEMA AS s, TABLE_NAME AS t, ENGINE AS e FROM information_schema.TABLES"+
			" WHERE TABLE_TYPE = 'BASE TABLE' AND ENGINE <> 'InnoDB' AND TABLE_SCHEMA NOT IN "+systemSchemas+" ORDER BY 1, 2")
		if err != nil || len(t) == 0 {
			return err
		}
		var names []string
		for _, r := range t[:min(len(t), namedTables)] {
			names = append(names, fmt.Sprintf("%s.%s (%s)", r["s"], r["t"], r["e"]))
		}
		if len(t) > namedTables {
			names = append(names, fmt.Sprintf("and %d more", len(t)-namedTables))
		}
		return fmt.Errorf("%w: %s; change each with ALTER TABLE … ENGINE=InnoDB before it joins", ErrNonTransaction,
			strings.Join(names, ", "))
	})
}
