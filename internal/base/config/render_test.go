package config

import (
	"regexp"
	"strings"
	"testing"
)

// TestRenderedExamples: every table of a new node's file may be uncommented where it stands: it is the last of its
// section, and its example is its own.
func TestRenderedExamples(t *testing.T) {
	n := Default()
	n.Cluster, n.Name, n.Dir, n.Peer.Advertise, n.API.Advertise = "c1", "n1", "/data", "db1:7306", "db1:8008"
	n.Router.Sessions = SessionsCarry
	text := string(Render(n))
	text = regexp.MustCompile(`(?m)^# (\[(mysql\.options|router\.levels)\])`).ReplaceAllString(text, "$1")
	for _, example := range example {
		text = strings.Replace(text, "# "+example, example, 1)
	}
	text = regexp.MustCompile(`(?m)^# ((max_lag|max_conns|seed_rate) = )`).ReplaceAllString(text, "$1")
	got, err := Parse("/data/trireme.toml", []byte(text))
	if err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	if got.MySQL.Options["innodb_buffer_pool_size"] != "4G" || got.Router.Levels["reports"] != "BEFORE" ||
		len(got.Router.Levels) != 1 || len(got.MySQL.Options) != 1 {
		t.Errorf("%v %v", got.MySQL.Options, got.Router.Levels)
	}
}
