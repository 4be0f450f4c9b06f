package node

import (
	"strings"
	"testing"
	"time"

	"trireme/internal/api"
)

func TestZoneText(t *testing.T) {
	for want, z := range map[string]api.ZoneView{
		"loss of zone a (1 of 3 voters): n2 would lead; nothing": {
			Zone: "a", Voters: 1, Leader: true, Quorum: true, Kept: true, To: "n2"},
		"loss of zone a (1 of 3 voters): writes continue, OKs wait for 10s first; nothing": {
			Zone: "a", Voters: 1, Quorum: true, Kept: true, Waits: true},
		"loss of zone a (2 of 3 voters): NO QUORUM, writes stop; nothing acknowledged is lost": {
			Zone: "a", Voters: 2, Kept: true, Waits: true},
		"loss of zone a (2 of 3 voters): NO QUORUM, writes stop; what is on disk there alone is lost": {
			Zone: "a", Voters: 2},
		"loss of zone a (1 of 3 voters): no other node could lead; nothing": {
			Zone: "a", Voters: 1, Leader: true, Quorum: true, Kept: true},
	} {
		if got := zoneText(z, 3, 10*time.Second); !strings.HasPrefix(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
