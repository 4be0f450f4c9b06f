package verify

import (
	"time"

	"trireme/internal/ops/demo"
)

// Login says where sessions connect and as whom.
type Login = demo.Login

// Fixed returns an Addr function of one address.
func Fixed(addr string) func() string { return demo.Fixed(addr) }

// Cluster is one of Trireme, as the demo makes it.
type Cluster interface {
	DataNodes() []*demo.Node
	Direct(*demo.Node) Login
}

// Nodes gives the logins to all data nodes' own mysqlds.
func Nodes(c Cluster) func() []NodeLogin {
	return func() []NodeLogin {
		var out []NodeLogin
		for _, n := range c.DataNodes() {
			out = append(out, NodeLogin{Name: n.Name, Login: c.Direct(n)})
		}
		return out
	}
}

// Endpoints opens a direct connection to every data node. Close with CloseEndpoints.
func Endpoints(c Cluster) ([]Endpoint, error) {
	var out []Endpoint
	for _, n := range c.DataNodes() {
		l := c.Direct(n)
		l.StatementTimeout = time.Minute // checksums of large tables
		db, err := l.Open("")
		if err != nil {
			CloseEndpoints(out)
			return nil, err
		}
		e := Endpoint{Name: n.Name, DB: db}
		if e.Inherited, err = n.Inherited(); err != nil {
			CloseEndpoints(append(out, e))
			return nil, err
		}
		out = append(out, e)
	}
	return out, nil
}

// CloseEndpoints closes what Endpoints opened.
func CloseEndpoints(list []Endpoint) {
	for _, e := range list {
		e.DB.Close()
	}
}
