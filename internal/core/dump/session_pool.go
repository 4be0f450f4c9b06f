package dump

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"trireme/internal/base/poll"
)

// sessionPool holds idle sessions ready: two before the first is taken, one spare afterwards. A goroutine pings them
// and replaces what is missing.
type sessionPool struct {
	open   func(context.Context) (*session, error)
	logger *slog.Logger

	ctx    context.Context
	cancel context.CancelFunc
	done   sync.WaitGroup
	once   sync.Once
	kick   chan struct{} // a session is missing
	arrive chan struct{} // closed and replaced whenever a session is added

	mu    sync.Mutex
	idle  []*session
	taken bool // one session is in use
}

const (
	sessionsReady = 2
	// keepAlivePeriod is how often an idle session is pinged, pingLimit how long that may take.
	keepAlivePeriod = 30 * time.Second
	pingLimit       = 5 * time.Second
	// reopenPause separates attempts to open a spare.
	reopenPause = 100 * time.Millisecond
)

func newSessionPool(open func(context.Context) (*session, error), logger *slog.Logger) *sessionPool {
	k := &sessionPool{open: open, logger: logger, kick: make(chan struct{}, 1), arrive: make(chan struct{})}
	k.ctx, k.cancel = context.WithCancel(context.Background())
	return k
}

// prepare opens what is missing and starts the goroutine.
func (k *sessionPool) prepare(ctx context.Context) error {
	for k.missing() {
		s, err := k.open(ctx)
		if err != nil {
			return err
		}
		k.add(s)
	}
	k.start()
	return nil
}

func (k *sessionPool) start() {
	k.once.Do(func() {
		k.done.Add(1)
		go k.run()
	})
}

func (k *sessionPool) missing() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	want := sessionsReady
	if k.taken {
		want--
	}
	return len(k.idle) < want
}

func (k *sessionPool) add(s *session) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.ctx.Err() != nil {
		s.close()
		return
	}
	k.idle = append(k.idle, s)
	close(k.arrive)
	k.arrive = make(chan struct{})
}

// take returns an idle session, waiting until one can be opened. The previous one must have been closed.
func (k *sessionPool) take(ctx context.Context) (*session, error) {
	k.start()
	for {
		k.mu.Lock()
		arrive := k.arrive
		if n := len(k.idle); n > 0 {
			s := k.idle[n-1]
			k.idle = k.idle[:n-1]
			k.taken = true
			k.mu.Unlock()
			k.refill()
			return s, nil
		}
		k.mu.Unlock()
		k.refill()
		select {
		case <-arrive:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-k.ctx.Done():
			return nil, ErrClosed
		}
	}
}

func (k *sessionPool) refill() {
	select {
	case k.kick <- struct{}{}:
	default:
	}
}

func (k *sessionPool) run() {
	defer k.done.Done()
	ping := time.NewTicker(keepAlivePeriod)
	defer ping.Stop()
	for {
		select {
		case <-k.ctx.Done():
			return
		case <-ping.C:
			k.pingIdle()
		case <-k.kick:
		}
		k.fill()
	}
}

// fill opens sessions until none is missing, however long mysqld makes it wait.
func (k *sessionPool) fill() {
	reported := false
	for k.missing() && k.ctx.Err() == nil {
		s, err := k.open(k.ctx)
		if err == nil {
			k.add(s)
			continue
		}
		if !reported && k.ctx.Err() == nil {
			k.logger.Warn("no spare connection to mysqld yet", "err", err)
			reported = true
		}
		_ = poll.Pause(k.ctx, reopenPause)
	}
}

// pingIdle takes each idle session out, so that no other caller uses it meanwhile, and puts it back when it answers.
func (k *sessionPool) pingIdle() {
	k.mu.Lock()
	sessions := len(k.idle)
	k.mu.Unlock()
	for range sessions {
		k.mu.Lock()
		if len(k.idle) == 0 {
			k.mu.Unlock()
			return
		}
		s := k.idle[0]
		k.idle = k.idle[1:]
		k.mu.Unlock()
		ctx, cancel := context.WithTimeout(k.ctx, pingLimit)
		err := s.client.Ping(ctx)
		cancel()
		if err != nil {
			s.close()
			continue
		}
		k.add(s)
	}
}

func (k *sessionPool) close() {
	k.cancel()
	k.done.Wait()
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, s := range k.idle {
		s.close()
	}
	k.idle = nil
}
