package dump

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"trireme/internal/base/poll"
	"trireme/internal/mysql/mysqlwire"
)

// sessionPool holds idle sessions ready: two before the first is taken, one spare afterwards. A goroutine pings them
// and replaces what is missing.
type sessionPool struct {
	open   func(context.Context) (*mysqlwire.Client, error)
	logger *slog.Logger

	ctx    context.Context
	cancel context.CancelFunc
	done   sync.WaitGroup
	once   sync.Once

	idle    chan *mysqlwire.Client
	missing chan struct{} // holds one for each session that is to be opened
	taken   bool          // one session is in use; belongs to take's caller
}

const (
	sessionsReady = 2
	// keepAlivePeriod is how often an idle session is pinged, pingLimit how long that may take.
	keepAlivePeriod = 30 * time.Second
	pingLimit       = 5 * time.Second
	// reopenPause separates attempts to open a spare.
	reopenPause = 100 * time.Millisecond
)

func newSessionPool(open func(context.Context) (*mysqlwire.Client, error), logger *slog.Logger) *sessionPool {
	k := &sessionPool{open: open, logger: logger, idle: make(chan *mysqlwire.Client, sessionsReady),
		missing: make(chan struct{}, sessionsReady)}
	for range sessionsReady {
		k.missing <- struct{}{}
	}
	k.ctx, k.cancel = context.WithCancel(context.Background())
	return k
}

// prepare opens what is missing and starts the goroutine.
func (k *sessionPool) prepare(ctx context.Context) error {
	for {
		select {
		case <-k.missing:
			s, err := k.open(ctx)
			if err != nil {
				k.missing <- struct{}{}
				return err
			}
			k.add(s)
		default:
			k.start()
			return nil
		}
	}
}

func (k *sessionPool) start() { k.once.Do(func() { k.done.Go(k.run) }) }

func (k *sessionPool) add(s *mysqlwire.Client) {
	k.idle <- s
	if k.ctx.Err() != nil {
		k.closeIdle()
	}
}

// take returns an idle session, waiting until one can be opened. The previous one must have been closed.
func (k *sessionPool) take(ctx context.Context) (*mysqlwire.Client, error) {
	k.start()
	select {
	case s := <-k.idle:
		if k.taken {
			k.missing <- struct{}{}
		}
		k.taken = true
		return s, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

func (k *sessionPool) run() {
	ping := time.NewTicker(keepAlivePeriod)
	defer ping.Stop()
	for {
		select {
		case <-k.ctx.Done():
			return
		case <-ping.C:
			k.pingIdle()
		case <-k.missing:
			k.fill()
		}
	}
}

// fill opens a session, however long mysqld makes it wait.
func (k *sessionPool) fill() {
	for reported := false; k.ctx.Err() == nil; _ = poll.Pause(k.ctx, reopenPause) {
		s, err := k.open(k.ctx)
		if err == nil {
			k.add(s)
			return
		}
		if !reported && k.ctx.Err() == nil {
			k.logger.Warn("no spare connection to mysqld yet", "err", err)
			reported = true
		}
	}
}

// pingIdle takes each idle session out, so that no other caller uses it meanwhile, and puts it back when it answers.
func (k *sessionPool) pingIdle() {
	for range len(k.idle) {
		select {
		case s := <-k.idle:
			ctx, cancel := context.WithTimeout(k.ctx, pingLimit)
			err := s.Ping(ctx)
			cancel()
			if err != nil {
				_ = s.Close()
				k.missing <- struct{}{}
				continue
			}
			k.add(s)
		default:
		}
	}
}

func (k *sessionPool) close() {
	k.cancel()
	k.done.Wait()
	k.closeIdle()
}

func (k *sessionPool) closeIdle() {
	for {
		select {
		case s := <-k.idle:
			_ = s.Close()
		default:
			return
		}
	}
}
