package router

import (
	"strings"
	"testing"
	"time"

	"trireme/internal/base/config"
)

// The router does what a file says, whichever program runs it.
func TestFromSettings(t *testing.T) {
	r := config.Default().Router
	r.Sessions, r.Replay, r.SplitPort, r.StreamPort, r.SplitSocket = config.SessionsCarry, config.ReplayReads, 7450, 0,
		"/run/split"
	r.Consistency, r.Levels, r.MaxLag = "BEFORE", map[string]string{"app": "AFTER"}, config.Duration(2*time.Second)
	r.MaxConnRate, r.MaxConnsPerAddress = 7, 8
	c, err := FromSettings(r)
	if err != nil || !c.Sessions || !c.ReplayReads || !strings.HasSuffix(c.SplitListen, ":7450") || c.StreamListen != "" ||
		c.SplitSocket != "/run/split" ||
		c.Consistency != Before || c.level("app") != After || c.level("other") != Before || c.MaxLag != 2*time.Second ||
		c.Limits.Rate != 7 || c.Limits.Conns != 8 || c.OwnWritesTimeout != r.OwnWritesTimeout.Std() {
		t.Errorf("%+v, %v", c, err)
	}
	for what, spoil := range map[string]func(*config.Router){
		"router.consistency": func(r *config.Router) { r.Consistency = "MOST" },
		"router.levels: app": func(r *config.Router) { r.Levels = map[string]string{"app": "MOST"} },
		"router.balancers":   func(r *config.Router) { r.Balancers = []string{"x"} },
	} {
		bad := r
		spoil(&bad)
		if _, err := FromSettings(bad); err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("%s: %v", what, err)
		}
	}
}
