package demo

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
)

// story tells what a demo shows: acts with a title, what happens in each and why that is safe. In a tour each act waits
// for its reader.
type story struct {
	p       *printer
	acts    int
	enter   <-chan struct{} // something for each line that the reader typed, closed at the end of the input; nil: no tour
	waiting atomic.Bool     // for the reader: nothing else is printed
}

// newStory reads in only in a tour. Nothing can end a read of a terminal, so it goes on until the process ends.
func newStory(p *printer, tour bool, in io.Reader) *story {
	s := &story{p: p}
	if !tour || in == nil {
		return s
	}
	lines := make(chan struct{})
	go func() {
		defer close(lines)
		for sc := bufio.NewScanner(in); sc.Scan(); {
			lines <- struct{}{}
		}
	}()
	s.enter = lines
	return s
}

// act begins the next one. The lines of text are printed as they are.
func (s *story) act(ctx context.Context, title, text string) error {
	s.acts++
	tour := ""
	if s.enter != nil {
		s.waiting.Store(true)
		defer s.waiting.Store(false)
		tour = "\n   Press Enter to continue."
	}
	text = "   " + strings.ReplaceAll(strings.TrimSpace(text), "\n", "\n   ")
	s.p.line("\n== %d. %s\n%s%s", s.acts, title, text, tour)
	if s.enter == nil {
		return nil
	}
	select {
	case <-s.enter:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// What the acts say.
const (
	clusterText = `
Each node is a mysqld with a Trireme daemon next to it. One node leads and takes writes; the daemons
of the others keep a copy of its log, and their mysqlds apply it.`
	mysqldText = `
SIGKILL, as if it had crashed in the middle of commits. Every commit that a client was told of is in
the log of another node, so that node can take over at once. The killed mysqld starts again, rolls
back what no client was told of, and follows. The dashboard's picture and history show it.`
	daemonText = `
SIGKILL to the daemon. Without it a mysqld must not take writes, so that mysqld dies with it, and
another node takes over as before.`
	verdictText = `
The load stops. Every write that a client was told of must be on every node exactly once, and all
nodes must be equal.`
)

// loadText says what an OK means for so many voters.
func loadText(writers, voters int) string {
	return fmt.Sprintf(
		"%d sessions write through the router. A client gets its OK once the commit is on the disks of %d of the\n"+
			"%d voters. Below: commits a second, the time that 95 %% of them took at most, and who leads.", writers, voters/2+1,
		voters)
}
