package alone

import (
	"context"
	"crypto/tls"
	"fmt"
	"time"

	"trireme/internal/api"
	"trireme/internal/router"
)

const (
	outcomesAtOnce = 4               // questions about outcomes that are under way
	outcomeWait    = 2 * time.Second // for which a node is asked
)

// certificate is what clients that ask for TLS are shown; nil: they get their server's, and their sessions end with its role.
func certificate(cert, key string) (*tls.Config, error) {
	if cert == "" {
		return nil, nil
	}
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		return nil, fmt.Errorf("router.tls_cert: %w", err)
	}
	return &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}, nil
}

// Reached implements router.Outcomes.
func (f *follower) Reached(ctx context.Context, t router.Target) (uint64, error) {
	index, err := f.serves(ctx, t)
	if err == nil && index == 0 {
		err = fmt.Errorf("%s does not tell its commit index: its daemon is older", t.Name)
	}
	return index, err
}

// Outcome implements router.Outcomes: it asks one node after the other until one knows.
func (f *follower) Outcome(ctx context.Context, sent router.Sent) router.Outcome {
	select {
	case f.outcomes <- struct{}{}:
		defer func() { <-f.outcomes }()
	case <-ctx.Done():
		return router.OutcomeUnknown
	}
	q := api.OutcomeQuery{Node: sent.Node, Epoch: sent.Epoch, Thread: sent.Thread, Index: sent.Index, Sole: sent.Others >= 0, Others: max(0, sent.Others)}
	for ctx.Err() == nil {
		for _, client := range f.clients() {
			o, err := client.Outcome(ctx, q, outcomeWait)
			switch {
			case err != nil:
				f.log.Debug("outcome of a statement", "error", err)
			case o.Result == api.Committed:
				return router.OutcomeCommitted
			case o.Result == api.NotCommitted:
				return router.OutcomeNotCommitted
			}
		}
		wait(ctx, leastPause)
	}
	return router.OutcomeUnknown
}
