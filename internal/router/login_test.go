package router

import (
	"net"
	"testing"

	"trireme/internal/mysqlwire"
)

// A password that is only one of two factors does not let the router log in elsewhere.
func TestSecondFactorIsNotPortable(t *testing.T) {
	ends := make([]net.Conn, 4)
	ends[0], ends[1] = net.Pipe()
	ends[2], ends[3] = net.Pipe()
	for _, c := range ends {
		defer c.Close()
	}
	l := &login{client: mysqlwire.NewConn(ends[0], 0), server: mysqlwire.NewConn(ends[2], 0), plugin: mysqlwire.PluginCachingSHA2, known: true}
	client, server := mysqlwire.NewConn(ends[1], 0), mysqlwire.NewConn(ends[3], 0)
	done := make(chan error, 1)
	go func() { done <- l.pass([]byte("\x02authentication_ldap_simple\x00")) }()
	if _, err := client.ReadPacket(); err != nil {
		t.Fatal(err)
	}
	if err := client.WritePacket([]byte("second")); err != nil {
		t.Fatal(err)
	}
	if _, err := server.ReadPacket(); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil || l.portable() {
		t.Errorf("%v, portable %t", err, l.portable())
	}
}

// In some character sets the last byte of a letter is that of a backslash, and where a string ends cannot be told.
func TestUnsafeCharacterSets(t *testing.T) {
	for collation, want := range map[byte]bool{255: true, 8: true, 28: false, 87: false, 13: false, 95: false, 248: false, 84: false} {
		l := &login{known: true, response: mysqlwire.Response{Collation: collation}}
		if l.portable() != want {
			t.Errorf("collation %d: portable %t", collation, !want)
		}
	}
	for text, want := range map[string]bool{"SET NAMES 'GBK'": true, "SET character_set_client = sjis": true, "SET NAMES utf8mb4": false} {
		var s state
		if s.set([]byte(text), false); (s.reason != "") != want {
			t.Errorf("%s: %q", text, s.reason)
		}
	}
}
