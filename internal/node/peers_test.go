package node

import (
	"testing"

	"trireme/internal/api"
)

// What a daemon said in its former life does not count for the present one: it was healthy then, and is being seeded now perhaps. A link that
// was broken for a moment changes nothing.
func TestFormerLifeIsNotBelieved(t *testing.T) {
	for gone, fresh := range map[bool]bool{true: false, false: true} {
		p := &peer{at: now(), up: false, gone: gone}
		p.status.Member.State = api.StateHealthy
		n := newTestNode(t)
		n.peers[2] = p
		n.PeerUp(2)
		if p.fresh() != fresh {
			t.Errorf("its process has ended %v: believed %v", gone, p.fresh())
		}
	}
}
