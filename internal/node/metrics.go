package node

import (
	"context"
	"math"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"trireme/internal/access/router"
	"trireme/internal/core/consensus"
	"trireme/internal/core/ha"
	"trireme/internal/core/transport"
	"trireme/internal/node/gossip"
)

// newMetrics registers what a node shows at /metrics. Values are read when they are asked for: nothing is counted on
// the commit path for them.
func (n *Node) newMetrics() *prometheus.Registry {
	r := prometheus.NewRegistry()
	r.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	gauge := func(name, help string, f func(st *consensus.Status) float64) {
		r.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Namespace: "trireme", Name: name, Help: help},
			func() float64 { st := n.cons.Status(); return f(&st) }))
	}
	locked := func(name, help string, f func(st *consensus.Status) float64) {
		gauge(name, help, func(st *consensus.Status) float64 {
			n.mu.Lock()
			defer n.mu.Unlock()
			return f(st)
		})
	}
	gauge("raft_term", "Raft term.", func(st *consensus.Status) float64 { return float64(st.Term) })
	gauge("raft_commit_index", "Raft commit index.", func(st *consensus.Status) float64 { return float64(st.Commit) })
	gauge("raft_last_index", "Last index of this node's raft log.",
		func(st *consensus.Status) float64 { return float64(st.LastIndex) })
	gauge("raft_durable_index", "Highest index that this node has fsynced.",
		func(st *consensus.Status) float64 { return float64(st.Durable) })
	gauge("raft_is_leader", "1 on the raft leader.",
		func(st *consensus.Status) float64 { return one(st.Role == consensus.Leader) })
	gauge("raft_log_bytes", "Bytes that the log's segments take.",
		func(*consensus.Status) float64 { return float64(n.rlog.Size()) })
	gauge("raft_log_pinned", "1 while the log is larger than raft.log_max because some node needs it.",
		func(*consensus.Status) float64 { return one(n.room.State().Pinned != "") })
	gauge("raft_log_at_bound", "1 while the log should take no more: raft.log_limit, or its disk.",
		func(*consensus.Status) float64 { return one(n.room.State().Bound != "") })
	gauge("writable", "1 when this node's mysqld takes writes.", func(*consensus.Status) float64 {
		s := n.lives.Status()
		return one(s.TakesWrites())
	})
	gauge("mysqld_ready", "1 when this node's mysqld is judged and fed, or serves.", func(*consensus.Status) float64 {
		s := n.lives.Status()
		return one(s.State() == ha.ServerReady)
	})
	gauge("failover_paused", "1 while automatic failover is paused.", func(*consensus.Status) float64 {
		return one(n.Settings().PausedAt(time.Now()))
	})
	gauge("failover_possible", "1 when another node could take over from the leader now.",
		func(*consensus.Status) float64 {
			return one(ha.Failover(n.viewForPeople()).To != 0)
		})
	gauge("commit_rules_suspended", "Commit rules that this leader's OKs do not wait for.",
		func(st *consensus.Status) float64 {
			if st.Role != consensus.Leader {
				return 0
			}
			return float64(len(n.acks.Rules().Suspended()))
		})
	gauge("commit_rules_waiting_seconds", "Seconds that the oldest commit has waited for a commit rule.",
		func(*consensus.Status) float64 {
			return n.acks.LongestWait().For.Seconds()
		})
	locked("mysqld_applied_index", "Highest raft index that mysqld holds.", func(*consensus.Status) float64 {
		return float64(n.srv.backlog.Applied)
	})
	locked("mysqld_lag_seconds", "Seconds since the oldest transaction not yet applied was committed on the leader; "+
		"NaN while no leader is heard.", func(st *consensus.Status) float64 {
		if !n.hearsLeader(st) {
			return math.NaN()
		}
		lag, _ := n.lagLocked()
		return lag.Seconds()
	})
	locked("mysqld_lag_bytes", "Bytes committed and not yet applied; NaN while no leader is heard.",
		func(st *consensus.Status) float64 {
			if !n.hearsLeader(st) {
				return math.NaN()
			}
			_, bytes := n.lagLocked()
			return float64(bytes)
		})
	gauge("disk_full", "1 while a disk of this node is full, or nearly.",
		func(*consensus.Status) float64 { return one(n.room.State().FullDir != "") })
	locked("mysqld_catch_up_seconds",
		"About how long mysqld needs for what it lacks, as fast as it last applied; 0: nothing, or not known.",
		func(*consensus.Status) float64 {
			_, bytes := n.lagLocked()
			if s := n.catchUpLocked(bytes); s != nil {
				return *s
			}
			return 0
		})
	locked("apply_delay_seconds", "apply_delay of this node, a learner that is delayed on purpose; 0: it is not.",
		func(*consensus.Status) float64 {
			return n.delay.Configured().Seconds()
		})
	locked("apply_delay_stopped", "1 while an operator's order has stopped this delayed learner at a transaction.",
		func(*consensus.Status) float64 {
			v := n.delay.View(n.appliedLocked())
			return one(v != nil && v.Stopped)
		})
	locked("apply_stopped", "1 while this node's applier has stopped with an error.", func(*consensus.Status) float64 {
		return one(n.seeding.ApplyError() != nil)
	})
	gauge("apply_blocked", "1 while a committed entry cannot be applied and no node that answers has what it did.",
		func(*consensus.Status) float64 {
			return one(n.View(context.Background()).Blocked != nil)
		})
	r.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{Namespace: "trireme", Name: "apply_heals_total",
		Help: "Times that this node gave its data up since its applier could not apply an entry or had left one out, or a session had ended an XA transaction."}, func() float64 { return float64(n.seeding.Heals()) }))
	locked("heavy_apply_seconds",
		"About how long this follower's mysqld will apply large transactions and DDL that are committed.",
		func(*consensus.Status) float64 {
			return n.srv.heavy.Seconds()
		})
	locked("heavy_replay_seconds", "About how long a follower will apply what is heavy and under way on this leader.",
		func(*consensus.Status) (sum float64) {
			for _, h := range n.heavyLocked() {
				sum += h.ReplaySeconds
			}
			return sum
		})
	gauge("flow_delay_seconds", "Seconds that lag_objective adds to a commit on this leader.",
		func(*consensus.Status) float64 {
			return n.acks.Delay().Seconds()
		})
	gauge("certificate_end_timestamp_seconds",
		"When this node's certificate ends, in Unix time; it is renewed in the last third of its life.",
		func(*consensus.Status) float64 {
			return float64(n.certs.Bundle().NotAfter().Unix())
		})
	r.MustRegister(&n.load, n.room)
	r.MustRegister(streamCollector{n.publisher}, packedCollector{n.tr.Packed()}, routerCollector{n}, viewCollector{n})
	return r
}

func one(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

func secondsOf(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

var (
	memberAge = prometheus.NewDesc("trireme_member_age_seconds",
		"Age of what this node knows of another one, which tells of itself each second.", []string{"member"}, nil)
	viewInDoubt = prometheus.NewDesc("trireme_view_in_doubt",
		"1 while this node does not hear a majority of the voters: what it shows of others may not be so.", nil, nil)
)

// viewCollector tells how far what this node shows of others can be trusted.
type viewCollector struct{ n *Node }

// Describe implements prometheus.Collector.
func (c viewCollector) Describe(out chan<- *prometheus.Desc) {
	out <- memberAge
	out <- viewInDoubt
	out <- gossip.BackupAge
}

// Collect implements prometheus.Collector.
func (c viewCollector) Collect(out chan<- prometheus.Metric) {
	v := c.n.View(context.Background())
	gossip.CollectBackup(v.Backup, out)
	out <- prometheus.MustNewConstMetric(viewInDoubt, prometheus.GaugeValue, one(v.Doubt != ""))
	for _, m := range v.Members {
		if m.AgeSeconds != nil {
			out <- prometheus.MustNewConstMetric(memberAge, prometheus.GaugeValue, *m.AgeSeconds, m.Name)
		}
	}
}

var packedBytes = prometheus.NewDesc("trireme_peer_packed_bytes_total",
	"Bytes for other nodes that were given to compression, and what they came to.",
	[]string{"size"}, nil)

// packedCollector reads the counters when they are asked for.
type packedCollector struct{ *transport.Packed }

func (c packedCollector) Describe(out chan<- *prometheus.Desc) { out <- packedBytes }

func (c packedCollector) Collect(out chan<- prometheus.Metric) {
	out <- prometheus.MustNewConstMetric(packedBytes, prometheus.CounterValue, float64(c.Before()), "before")
	out <- prometheus.MustNewConstMetric(packedBytes, prometheus.CounterValue, float64(c.After()), "after")
}

var (
	routerSessions = prometheus.NewDesc("trireme_router_sessions",
		"Sessions that are open on a port of this node's router.", routerPort, nil)
	routerHeld = prometheus.NewDesc("trireme_router_held",
		"Connections and statements on that port that wait for a server.", routerPort, nil)
	routerAccepted = prometheus.NewDesc("trireme_router_accepted_total", "Connections that the port accepted.",
		routerPort, nil)
	routerRefused = prometheus.NewDesc("trireme_router_refused_total",
		"Of these, connections that were refused: too many, or no server in time.", routerPort, nil)
	routerCut = prometheus.NewDesc("trireme_router_cut_total",
		"Connections to servers that were closed because those lost their role.", routerPort, nil)
	routerCarried = prometheus.NewDesc("trireme_router_carried_total",
		"Times that a session went on at another server.", routerPort, nil)
	routerNotCarried = prometheus.NewDesc("trireme_router_not_carried_total",
		"Followed sessions that ended because they could not.", routerPort, nil)
	routerTied = prometheus.NewDesc("trireme_router_tied_sessions",
		"Sessions that a planned switchover ends, by what ties them to the leader.", []string{"reason"}, nil)

	routerPort = []string{"port"}
)

// routerCollector reads the router's counters when they are asked for.
type routerCollector struct{ n *Node }

// Describe implements prometheus.Collector.
func (c routerCollector) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{routerSessions, routerHeld, routerAccepted, routerRefused, routerCut,
		routerCarried, routerNotCarried, routerTied} {
		out <- d
	}
}

// Collect implements prometheus.Collector.
func (c routerCollector) Collect(out chan<- prometheus.Metric) {
	s := c.n.routing.Stats()
	for port, p := range map[string]router.PortStats{"rw": s.RW, "ro": s.RO, "split": s.Split, "stream": s.Stream} {
		gauge := func(d *prometheus.Desc, v int) {
			out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(v), port)
		}
		count := func(d *prometheus.Desc, v uint64) {
			out <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), port)
		}
		gauge(routerSessions, p.Followed+p.Tied)
		gauge(routerHeld, p.Held)
		count(routerAccepted, p.Accepted)
		count(routerRefused, p.Refused)
		count(routerCut, p.Cut)
		count(routerCarried, p.Carried)
		count(routerNotCarried, p.NotCarried)
	}
	for reason, n := range s.TiedBy {
		out <- prometheus.MustNewConstMetric(routerTied, prometheus.GaugeValue, float64(n), reason)
	}
}
