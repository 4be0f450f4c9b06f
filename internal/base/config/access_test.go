package config

import (
	"strings"
	"testing"
	"time"
)

// TestRevoked: by serial, by node and by no longer being a member; what is not known yet is trusted; the list does not
// grow forever.
func TestRevoked(t *testing.T) {
	at := time.Unix(1e9, 0)
	c := &Cluster{NextID: 5, Members: []Member{{ID: 1, Name: "n1"}, {ID: 2, Name: "n2"}}}
	for _, r := range []Revocation{{Serial: "aa", At: at}, {ID: 2, Name: "n2", At: at}} {
		if err := c.Revoke(r); err != nil {
			t.Fatal(err)
		}
	}
	for _, test := range []struct {
		id     uint64
		serial string
		why    string // "": trusted
	}{
		{1, "bb", ""}, {1, "aa", "serial aa"}, {2, "cc", `node "n2"`}, {3, "dd", "not a member"}, {4, "", "not a member"},
		{5, "ee", ""}, {0, "ff", ""}, {0, "aa", "serial aa"}, {0, "", ""},
	} {
		if why := c.WhyRevoked(test.id, test.serial); (why == "") != (test.why == "") || !strings.Contains(why, test.why) {
			t.Errorf("%d %q: %q, want %q", test.id, test.serial, why, test.why)
		}
	}
	c.Members = c.Members[:1]
	if err := c.Revoke(Revocation{Serial: "ab", At: at.Add(revokedFor - time.Hour)}); err != nil ||
		len(c.RevokedCerts) != 2 {
		t.Errorf("%v, %+v", err, c.RevokedCerts) // n2 is no member: its id tells
	}
	if err := c.Revoke(Revocation{Serial: "ac", At: at.Add(revokedFor)}); err != nil || c.WhyRevoked(0, "aa") == "" {
		t.Errorf("there is room, and a clock may have been wrong: %v, %+v", err, c.RevokedCerts)
	}
	for i := len(c.RevokedCerts); i < maxRevoked; i++ {
		if err := c.Revoke(Revocation{Serial: "x", At: at.Add(revokedFor)}); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.Revoke(Revocation{Serial: "y", At: at.Add(revokedFor)}); err != nil || c.WhyRevoked(0, "aa") != "" ||
		c.WhyRevoked(0, "ab") == "" {
		t.Errorf("the one that is the oldest makes room: %v", err)
	}
	if err := c.Revoke(Revocation{Serial: "z", At: at.Add(revokedFor)}); err == nil {
		t.Error("without a bound")
	}
}
