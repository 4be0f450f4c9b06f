package lifecycle

import (
	"context"
	"sync"

	"trireme/internal/base/config"
)

// LimitTransactions puts transaction_refuse in force, if it still may once it is its turn; 0 takes it back.
func (l *Life) LimitTransactions(ctx context.Context, refuse config.Bytes, still func() bool) error {
	return l.limit.put(refuse, still, func() error { return l.mysql.LimitTransactions(ctx, uint64(refuse)) })
}

// trxLimit is the limit of transactions in a life of mysqld; the zero value is no limit.
type trxLimit struct {
	mu     sync.Mutex
	now    config.Bytes // 0: none
	unsure bool         // the last attempt failed: it may be in force or not
}

// put sets it, if it is another one.
func (t *trxLimit) put(want config.Bytes, still func() bool, set func() error) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.now == want && !t.unsure || !still() {
		return nil
	}
	err := set()
	if t.unsure = err != nil; err == nil {
		t.now = want
	}
	return err
}

// Always is for a limit that may be put in force in any case.
func Always() bool { return true }

// Refused is how many transactions mysqld has refused since it was last asked. It is for one caller at a time.
func (l *Life) Refused(ctx context.Context) (more uint64, err error) {
	refused, err := l.mysql.RefusedTransactions(ctx)
	if err != nil || refused <= l.refused {
		return 0, err
	}
	more = refused - l.refused
	l.refused = refused
	return more, nil
}
