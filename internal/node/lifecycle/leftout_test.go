package lifecycle

import (
	"testing"
	"time"

	"trireme/internal/mysql/gtid"
)

// TestLeftOut: a transaction counts as left out when it has stood between executed ones for a time, and no worker was
// at it.
func TestLeftOut(t *testing.T) {
	a, b := gtid.GTID{GNO: 7}, gtid.GTID{GNO: 8}
	var w leftOut
	for i, look := range []struct {
		at       time.Duration
		what     gtid.GTID
		found    bool
		applying string
		want     bool
	}{
		{1 * time.Second, a, true, "", false},
		{leftOutLimit, a, true, "", false},
		{1*time.Second + leftOutLimit, a, true, a.String(), false}, // a worker is at it after all
		{2*time.Second + leftOutLimit, a, true, "", false},
		{2*time.Second + 2*leftOutLimit, b, true, "", false}, // another one
		{2*time.Second + 3*leftOutLimit, a, false, "", false},
		{3*time.Second + 3*leftOutLimit, b, true, a.String(), false},
		{3*time.Second + 4*leftOutLimit, b, true, "", true},
	} {
		if got := w.note(look.at, look.what, look.found, []string{"", look.applying}); got != look.want {
			t.Errorf("look %d: %v", i, got)
		}
	}
}
