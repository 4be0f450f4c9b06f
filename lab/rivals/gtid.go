package rivals

import (
	"context"
	"database/sql"
	"fmt"

	"trireme/internal/mysql/gtid"
)

// behindGTID counts the transactions of the leaders' gtid_executed that the worst of the replicas has not executed.
func behindGTID(ctx context.Context, leaders, replicas []*sql.DB) (int64, error) {
	var all gtid.Set
	for _, db := range leaders {
		set, err := executed(ctx, db)
		if err != nil {
			return 0, err
		}
		all.AddSet(set)
	}
	var worst int64
	for _, db := range replicas {
		set, err := executed(ctx, db)
		if err != nil {
			return 0, err
		}
		worst = max(worst, int64(all.Subtract(set).Count()))
	}
	return worst, nil
}

func executed(ctx context.Context, db *sql.DB) (set gtid.Set, err error) {
	var text string
	if err := db.QueryRowContext(ctx, "SELECT @@GLOBAL.gtid_executed").Scan(&text); err != nil {
		return set, fmt.Errorf("gtid_executed: %w", err)
	}
	return set, set.UnmarshalText([]byte(text))
}
