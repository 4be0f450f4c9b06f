package rivals

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"time"
)

// Reporter is a running system that reports how far its replicas lag.
type Reporter interface {
	// ReportedLag returns the lag that the system reports now, by host, without replicas whose lag it does not know. It
	// may be called concurrently with other methods.
	ReportedLag(context.Context) (map[string]Lag, error)
}

// Lag is what a system says of one replica.
type Lag struct {
	Time  time.Duration
	Bytes int64 // committed and not applied; -1: it does not say that
}

// ReportedLag is what `trireme status` shows, asked of the first node.
func (t *trireme) ReportedLag(ctx context.Context) (map[string]Lag, error) {
	v, err := t.asked.Cluster(ctx)
	if err != nil {
		return nil, err
	}
	out := map[string]Lag{}
	for _, m := range v.Members {
		if m.Name != v.Leader && m.MySQL != nil && m.MySQL.LagSeconds != nil && m.MySQL.LagBytes != nil {
			out[m.Name] = Lag{time.Duration(*m.MySQL.LagSeconds * float64(time.Second)), int64(*m.MySQL.LagBytes)}
		}
	}
	return out, nil
}

// ReportedLag is Seconds_Behind_Source of SHOW REPLICA STATUS, in whole seconds.
func (r *replication) ReportedLag(ctx context.Context) (map[string]Lag, error) {
	out := map[string]Lag{}
	for _, s := range r.servers[1:] {
		text, err := s.replicaStatus(ctx, "Seconds_Behind_Source")
		if err != nil {
			return nil, fmt.Errorf("%s: %w", s.host.name, err)
		}
		if seconds, err := strconv.Atoi(text); err == nil { // NULL: not known
			out[s.host.name] = Lag{time.Duration(seconds) * time.Second, -1}
		}
	}
	return out, nil
}

// replicaStatus is one column of SHOW REPLICA STATUS; empty for NULL.
func (s *server) replicaStatus(ctx context.Context, column string) (string, error) {
	rows, err := s.db.QueryContext(ctx, "SHOW REPLICA STATUS")
	if err != nil {
		return "", err
	}
	defer rows.Close()
	columns, err := rows.Columns()
	if err != nil {
		return "", err
	}
	values := make([]sql.NullString, len(columns))
	to := make([]any, len(columns))
	for i := range values {
		to[i] = &values[i]
	}
	if !rows.Next() {
		return "", errors.Join(errors.New("it is no replica"), rows.Err())
	}
	if err := rows.Scan(to...); err != nil {
		return "", err
	}
	for i, c := range columns {
		if c == column {
			return values[i].String, nil
		}
	}
	return "", fmt.Errorf("SHOW REPLICA STATUS has no %s", column)
}
