package drivers

import (
	"net"
	"strconv"
	"testing"
)

// hasIPv6 says whether this machine has it.
func hasIPv6() bool {
	l, err := net.Listen("tcp", "[::1]:0")
	return err == nil && l.Close() == nil
}

// TestIPv6: a router that listens on "::" (build) serves clients over IPv6 on each port, followed ones and, since they
// compress, passed ones. 1 s.
func TestIPv6(t *testing.T) {
	t.Parallel()
	if !hasIPv6() {
		t.Skip("this machine has no IPv6")
	}
	c := lease(t)
	c.sql("CREATE DATABASE IF NOT EXISTS six", "CREATE TABLE IF NOT EXISTS six.t (id INT PRIMARY KEY)", "TRUNCATE six.t")
	ports := c.carriers()[1].Ports
	at := func(port int) string { return net.JoinHostPort("::1", strconv.Itoa(port)) }
	c.routed(at(ports.RW)).exec("INSERT INTO six.t VALUES (1)")
	c.routed(at(ports.Split)).exec("INSERT INTO six.t VALUES (2)")
	for _, port := range []int{ports.RW, ports.RO, ports.Split} {
		if got := c.routed(at(port), "SET @@trireme_consistency = 'BEFORE'").value("SELECT COUNT(*) FROM six.t"); got != "2" {
			t.Errorf("port %d: %s rows", port, got)
		}
		s := settings{User: c.State().User, Password: c.State().Password}
		if err := compressed(s, door{Host: "::1", Port: port}, "zstd"); err != nil {
			t.Errorf("port %d: %v", port, err)
		}
	}
}
