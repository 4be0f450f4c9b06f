package standalone

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"trireme/internal/api"
)

// tellWait is for telling the leader that nothing is under way. It waits for less.
const tellWait = time.Second

// held is a planned switchover whose leader waits for this router, if it has a token: until nothing of its sessions is
// under way.
type held struct {
	node   string
	number uint64 // RouteView.Hold; 0: no hold
	told   bool
}

// holdForLocked takes the view that counts; a zero one: none does.
func (f *follower) holdForLocked(v api.RouteView) {
	if v.Hold == 0 || v.Node != f.held.node || v.Hold != f.held.number {
		f.held = held{node: v.Node, number: v.Hold}
	}
}

// wakeLoop has the main loop look whether the router is quiet.
func (f *follower) wakeLoop() {
	select {
	case f.quiet <- struct{}{}:
	default:
	}
}

// tellQuiet tells a leader that waits for it, once, that this router holds its sessions and has nothing under way.
func (f *follower) tellQuiet() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.token == "" || f.held.number == 0 || f.held.told || !f.router.Quiet() {
		return
	}
	client := f.clientOfLocked(f.held.node)
	if client == nil {
		return
	}
	f.held.told = true
	h := f.held
	f.questions.Go(func() {
		ctx, cancel := context.WithTimeout(f.ctx, tellWait)
		defer cancel()
		switch res, err := client.Quiet(ctx, h.number); {
		case err != nil:
			f.log.Warn("a planned switchover was not told that this router has nothing under way", "node", h.node, "error", err)
		case !res.Waited:
			f.log.Warn("a planned switchover does not wait for this router: it has taken no token with its stream",
				"node", h.node)
		}
	})
}

// tokenIn reads a file that holds a token and nothing else; empty: there is no file.
func tokenIn(file string) (string, error) {
	if file == "" {
		return "", nil
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("token_file: %w", err)
	}
	if words := strings.Fields(string(data)); len(words) == 1 {
		return words[0], nil
	}
	return "",
		fmt.Errorf(
			"token_file: %s does not hold a token alone; write there what `trireme token add NAME --role viewer` prints", file)
}
