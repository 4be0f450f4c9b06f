package setup

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"syscall"
	"time"

	"trireme/internal/api"
	"trireme/internal/base/config"
)

// proofLimit is how long one connection to a port that is being proven may stay.
const proofLimit = 5 * time.Second

// ports are the listeners of a node that is to join: on each of the addresses by which others will reach it they say a
// word, which the leader looks for before it takes the node. They end before the daemon takes their place.
type ports struct {
	word      string
	listeners []net.Listener
}

// inUse is the error of a port that something else has.
func inUse(addr string, mysqlPort int) error {
	err := api.Errorf(api.KindConflict, "%s is in use: this node could not listen there", addr)
	if _, port, _ := net.SplitHostPort(addr); port == strconv.Itoa(mysqlPort) {
		return err.With("if it is the server of MySQL's own package: `systemctl disable --now mysql` (mysqld on Red Hat); " +
			"to keep that server, give the node another port with --mysql-port")
	}
	return err.With("stop what listens there, or give the node another port")
}

// BusyPort is the error of a data node's daemon or mysqld that would not get one of its ports now.
func BusyPort(n config.Node) error {
	p, err := openPorts(n, true, nil)
	if err == nil {
		p.close()
	}
	return err
}

// openPorts listens where the node's daemon and its mysqld will. Without mysqld: a logger, or a server that runs there
// already.
func openPorts(n config.Node, mysqld bool, listen func(network, addr string) (net.Listener, error)) (*ports, error) {
	if listen == nil {
		listen = net.Listen
	}
	addrs := []string{n.Peer.Listen, n.API.Listen}
	if mysqld {
		for _, host := range strings.Split(n.MySQL.Bind, ",") {
			if host = strings.TrimSpace(host); host == "*" {
				host = ""
			}
			addrs = append(addrs, net.JoinHostPort(host, strconv.Itoa(n.MySQL.Port)))
		}
	}
	p := &ports{word: rand.Text()}
	for _, addr := range addrs {
		l, err := listen("tcp", addr)
		if errors.Is(err, syscall.EADDRINUSE) {
			err = inUse(addr, n.MySQL.Port)
		} else if err != nil {
			err = fmt.Errorf("this node could not listen on %s: %w", addr, err)
		}
		if err != nil {
			p.close()
			return nil, err
		}
		p.listeners = append(p.listeners, l)
		go p.answer(l)
	}
	return p, nil
}

func (p *ports) answer(l net.Listener) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		_ = conn.SetDeadline(time.Now().Add(proofLimit))
		_, _ = io.WriteString(conn, p.word+"\n") // who does not get it asks again
		_ = conn.Close()
	}
}

func (p *ports) close() {
	for _, l := range p.listeners {
		_ = l.Close()
	}
}
