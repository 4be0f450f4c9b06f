package node

import (
	"errors"
	"maps"
	"os"
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"trireme/internal/access/router"
	"trireme/internal/api"
	"trireme/internal/base/pki"
	"trireme/internal/core/raftlog"
	"trireme/internal/node/routing"
)

// TestLoad: the node adds what its router and its certificates tell.
func TestLoad(t *testing.T) {
	n := newTestNode(t)
	ca, err := pki.NewCA("shop", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	b, err := ca.Issue(pki.NodeCert{Name: "n1", ID: 1}, time.Now())
	if err == nil {
		err = errors.Join(ca.Save(n.cfg.TLSDir()), b.Save(n.cfg.TLSDir()), n.certs.Open())
	}
	if err != nil {
		t.Fatal(err)
	}
	n.routing.Counted(routing.Clients{Ports: map[string]api.PortView{"rw": {Sessions: 3}}})
	defer n.routing.Elsewhere.Follow("app")()
	n.load.Committed(1, &raftlog.Meta{Kind: raftlog.Trx}, 100, nil)
	v := n.Load()
	if v.Node != "db1" || v.Bytes != 100 {
		t.Errorf("%+v", v)
	}
	if v.Ports["rw"].Sessions != 3 || v.Routers != 1 || v.CertificateEnd != n.certs.Bundle().NotAfter() {
		t.Errorf("ports %+v, %d routers, certificate until %v", v.Ports, v.Routers, v.CertificateEnd)
	}
}

// TestMetricsAreDocumented: docs/metrics.md lists exactly what the node registers.
func TestMetricsAreDocumented(t *testing.T) {
	registered := map[string]bool{}
	for _, file := range []string{"metrics.go", "load/load.go", "room/space.go", "stream.go", "gossip/backup.go"} {
		source, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`(?:gauge|locked)\("(\w+)"|NewDesc\("trireme_(\w+)"|Name: "(\w+)"`).
			FindAllSubmatch(source, -1) {
			registered["trireme_"+string(m[1])+string(m[2])+string(m[3])] = true
		}
	}
	page, err := os.ReadFile("../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	listed := map[string]bool{}
	for _, m := range regexp.MustCompile("(?m)^\\| `(\\w+)").FindAllSubmatch(page, -1) {
		listed[string(m[1])] = true
	}
	if len(registered) < 20 || !maps.Equal(registered, listed) {
		t.Errorf("registered: %v\nlisted: %v", slices.Sorted(maps.Keys(registered)), slices.Sorted(maps.Keys(listed)))
	}
}

// TestRouterMetrics: the router's series of each port; of what ties sessions there are those that there are.
func TestRouterMetrics(t *testing.T) {
	reg := prometheus.NewPedanticRegistry()
	n := newTestNode(t)
	if err := n.routing.Start(router.Config{}, false); err != nil {
		t.Fatal(err)
	}
	defer n.routing.Close()
	reg.MustRegister(routerCollector{n})
	families, err := reg.Gather()
	series := 0
	for _, f := range families {
		series += len(f.Metric)
	}
	if err != nil || len(families) != 7 || series != 28 {
		t.Errorf("%d series of %d metrics, %v: %v", series, len(families), err, families)
	}
}
