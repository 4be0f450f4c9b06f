package config

import (
	"errors"
	"strings"
	"testing"
	"time"
)

func TestParseStandalone(t *testing.T) {
	good := `nodes = ["db1:8008", "[::1]:8008"]
ca = "ca.crt"
token_file = "token"
[router]
bind = "127.0.0.1"
rw_port = 3306
hold_timeout = "3s"
[log]
level = "warn"
`
	a, err := ParseStandalone("/etc/trireme/router.toml", []byte(good))
	if err != nil {
		t.Fatal(err)
	}
	if a.CA != "/etc/trireme/ca.crt" || a.Token != "/etc/trireme/token" || len(a.Nodes) != 2 || a.RWPort != 3306 ||
		a.ROPort != Default().Router.ROPort || a.SplitPort != Default().Router.SplitPort || a.StreamPort != 0 ||
		a.Bind != "127.0.0.1" ||
		a.HoldTimeout.Std() != 3*time.Second || a.Log.Level != "warn" {
		t.Fatalf("%+v", a)
	}
	for _, tc := range []struct{ old, new, want string }{
		{`nodes = ["db1:8008", "[::1]:8008"]`, "", `nodes: is missing; add a line`},
		{`"db1:8008"`, `"db1"`, `router.toml:1: nodes: db1 is not host:port`},
		{`"db1:8008"`, `7`, `router.toml:1: nodes: 7 is not host:port`},
		{`ca = "ca.crt"`, "", `ca: is missing; copy tls/ca.pem`},
		{`"token"`, "1", `router.toml:3: token_file: 1 is no file`},
		{`[log]`, "[mysql]\nport = 1\n[log]", `router.toml:8: mysql: unknown setting of a router`},
		{`rw_port`, `rw_prot`, `router.toml:6: router.rw_prot: unknown setting; did you mean router.rw_port?`},
		{`rw_port = 3306`, `rw_port = 6447`, `router.ro_port: port 6447 is taken by router.rw_port`},
		{`rw_port = 3306`, `rw_port = 0`, `router.toml:6: router.rw_port: port 0 is not`},
		{`"127.0.0.1"`, `""`, `router.toml:5: router.bind`},
		{`rw_port = 3306`, `stream_port = 7307`, `router.toml:6: router.stream_port: is of a node only`},
		{`rw_port = 3306`, `rw_port = 6450`, `router.split_port: port 6450 is taken by router.rw_port`},
		{`rw_port = 3306`, "sessions = \"pass\"\nconsistency = \"BEFORE\"",
			`router.toml:7: router.consistency: BEFORE cannot be kept for sessions that are not followed`},
		{`rw_port = 3306`, "split_port = 0\nsplit_socket = \"/run/split\"",
			`router.toml:7: router.split_socket: needs router.split_port`},
		{`"3s"`, `"2h"`, `router.toml:7: router.hold_timeout`},
		{`"warn"`, `"loud"`, `router.toml:9: log.level`},
		{`ca = `, `ca : `, `router.toml:2: not valid TOML`},
	} {
		_, err := ParseStandalone("/etc/trireme/router.toml", []byte(strings.Replace(good, tc.old, tc.new, 1)))
		var e *Error
		if !errors.As(err, &e) || !strings.Contains(e.Error(), tc.want) {
			t.Errorf("%s: got %v, want %s", tc.new, err, tc.want)
		}
	}
	full := strings.Replace(good, `rw_port = 3306`, `sessions = "carry"
split_port = 7450
split_socket = "/run/split"
consistency = "BEFORE"
max_lag = "2s"
levels = { app = "AFTER" }`, 1)
	if a, err = ParseStandalone("/etc/trireme/router.toml", []byte(full)); err != nil || a.SplitPort != 7450 ||
		a.SplitSocket != "/run/split" ||
		a.Consistency != "BEFORE" || a.Levels["app"] != "AFTER" || a.MaxLag.Std() != 2*time.Second {
		t.Errorf("%+v, %v", a, err)
	}
	if _, err := LoadStandalone("/nowhere/router.toml"); err == nil || !strings.Contains(err.Error(), "no such file") {
		t.Error(err)
	}
}
