package membership

import (
	"context"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	"trireme/internal/api"
	"trireme/internal/base/config"
	"trireme/internal/base/poll"
)

// A name that was made a moment ago may not be known everywhere yet, so the leader tries for a while.
const (
	reachLimit = 10 * time.Second
	reachOnce  = 2 * time.Second
	reachPause = 500 * time.Millisecond
)

// reaches has a node that asks to join prove that what it gives for its addresses leads to it from here: its `trireme
// join` listens there and says the word that came with the request. A joiner of an older version sends none, and one
// that brings a running server has its port taken.
func reaches(ctx context.Context, req api.JoinRequest, role string) error {
	if req.Proof == "" {
		return nil
	}
	m := req.Member
	addrs := [][2]string{{"peer.advertise", m.Peer}, {"api.advertise", m.API}}
	if role != config.RoleLogger && req.Executed == nil {
		host, _, _ := net.SplitHostPort(m.Peer)
		if m.MySQLHost != "" {
			host = m.MySQLHost
		}
		addrs = append(addrs, [2]string{"mysql.port", net.JoinHostPort(host, strconv.Itoa(m.MySQLPort))})
	}
	ctx, cancel := context.WithTimeout(ctx, reachLimit)
	defer cancel()
	problems := make([]string, len(addrs))
	var wg sync.WaitGroup
	for i, a := range addrs {
		wg.Go(func() {
			for {
				err := says(ctx, a[1], req.Proof)
				if err == nil {
					problems[i] = ""
					return
				}
				if ctx.Err() == nil || problems[i] == "" {
					problems[i] = fmt.Sprintf("%s = %s: %v", a[0], a[1], err)
				}
				if poll.Pause(ctx, reachPause) != nil {
					return
				}
			}
		})
	}
	wg.Wait()
	var found []string
	for _, p := range problems {
		if p != "" {
			found = append(found, p)
		}
	}
	if len(found) == 0 {
		return nil
	}
	return api.Errorf(api.KindNotReady, "the leader does not reach %s at what it gives for its addresses: %s", m.Name,
		strings.Join(found, "; ")).
		With("nothing was changed and the token is still good: give --host a name or address by which the other nodes reach this host, and open its ports to them")
}

// says is nil if a listener at addr says a word and nothing else.
func says(ctx context.Context, addr, word string) error {
	ctx, cancel := context.WithTimeout(ctx, reachOnce)
	defer cancel()
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	b, err := io.ReadAll(io.LimitReader(conn, int64(len(word)+2)))
	if string(b) == word+"\n" {
		return nil
	}
	if err != nil {
		return fmt.Errorf("it does not answer: %w", err)
	}
	return fmt.Errorf("something else listens there")
}
