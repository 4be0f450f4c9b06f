package node

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"trireme/internal/base/rule"
	"trireme/internal/core/ledger"
	"trireme/internal/core/raftlog"
)

// TestBrokenRuleIsLoggedByItsKey: what looks after daemons finds the rule by the key, whatever broke it; a disk that
// fails breaks none.
func TestBrokenRuleIsLoggedByItsKey(t *testing.T) {
	meta := raftlog.AppendMeta(nil, &raftlog.Meta{Kind: raftlog.Trx, Node: 1, Incarnation: 1})
	_, _, noBarrier := ledger.New(raftlog.Boundary{}).Add(1, 1, meta, time.Time{})
	for _, c := range []struct {
		err  error
		want string
	}{
		{noBarrier, " rule=S6\n"},
		{fmt.Errorf("the feed: %w", raftlog.ErrInvariant), " rule=S2\n"},
		{fmt.Errorf("log: %w", raftlog.ErrNoSpace), ""},
		{errors.New("S12: only a text"), ""},
	} {
		var out bytes.Buffer
		slog.New(slog.NewTextHandler(&out, nil)).Error("this node stops permanently", rule.Fields(c.err)...)
		if got := out.String(); !strings.HasSuffix(got, c.want) || strings.Contains(got, " rule=") != (c.want != "") {
			t.Errorf("%v: %s, want %q", c.err, got, c.want)
		}
	}
}
