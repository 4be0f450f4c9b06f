package node

import (
	"fmt"
	"time"

	"trireme/internal/core/transport"
)

// twinShown is for how long a node that ran twice is warned of.
const twinShown = 10 * time.Minute

// twin is a node that ran twice.
type twin struct {
	text string
	at   time.Duration
}

// eventTwin: two processes ran with the identity of one node.
const eventTwin = "twin"

// twin is told by the transport that two processes run as one node, and that the younger one is refused.
func (n *Node) twin(id uint64, addr string) {
	if !n.isUp() {
		return // it will be back
	}
	name := n.memberName(id)
	text :=
		fmt.Sprintf("two processes ran as %s; the one that was started later, which connected from %s, is refused: a copied folder or a cloned machine? "+
			"Remove that copy; a new node joins by `trireme add` and `trireme join`", name, addr)
	n.log.Error(text, "peer", id)
	e := n.history.Event(eventTwin, 0, text)
	e.Member = name
	n.history.Add(e)
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.twins) >= maxTwins {
		n.twins = n.twins[1:]
	}
	n.twins = append(n.twins, twin{text, now()})
	n.gossip.Publish()
}

// maxTwins are warned of at a time.
const maxTwins = 4

func (n *Node) twinWarningsLocked() (out []string) {
	for _, t := range n.twins {
		if now() < t.at+twinShown {
			out = append(out, t.text)
		}
	}
	return out
}

// toldTwin ends this node: an older process has its identity. Two would break what each of them promises to the others.
func (n *Node) toldTwin(by uint64, why string) {
	n.fail(
		fmt.Errorf(
			"%w: node %d says: %w: %s. Its folder %s is a copy, or the original: keep one of the two and remove the other; "+
				"a new node joins by `trireme add` and `trireme join`", ErrFinal, by, transport.ErrTwin, why, n.cfg.Dir))
}
