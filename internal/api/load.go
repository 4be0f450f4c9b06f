package api

import (
	"context"
	"net/http"
	"slices"
	"time"
)

// Stages of a commit on the leader, in the order in which they follow each other. Their times add up to what a commit
// takes, less what mysqld needs before it has written to its binary log and after it was told to go on.
const (
	StageMySQL    = "mysqld"   // mysqld has stamped the transaction -> the daemon has read it from the binary log
	StageLog      = "log"      // -> it is fsynced in the daemon's own log, or committed, whichever is first
	StageMajority = "majority" // -> committed: the network and the logs of a majority
	StageAck      = "ack"      // -> mysqld gets the acknowledgement; commit rules wait here
)

// Stages are all of them. StageTotal is their sum, which is counted as well for its quantiles.
var Stages = []string{StageMySQL, StageLog, StageMajority, StageAck}

// StageTotal names the sum of all stages in LoadView.Commits.
const StageTotal = "total"

// LatencyBounds are the upper bounds of a Histogram's buckets, in seconds.
var LatencyBounds = []float64{
	50e-6, 100e-6, 200e-6, 350e-6, 500e-6, 750e-6, 1e-3, 1.5e-3, 2e-3, 3.5e-3, 5e-3, 7.5e-3, 10e-3, 15e-3, 20e-3, 35e-3,
	50e-3, 75e-3, 0.1, 0.2, 0.35, 0.5, 1, 2, 5, 10,
}

// Histogram counts durations.
type Histogram struct {
	Count   uint64   `json:"count"`
	SumS    float64  `json:"sum_s"`
	Buckets []uint64 `json:"buckets"` // by LatencyBounds, each for itself; the last one is for what is above all of them
}

// Since is what was counted after an earlier state of the same histogram; all of it when that one is of another life of
// the node.
func (h Histogram) Since(before Histogram) Histogram {
	if before.Count > h.Count || len(before.Buckets) != len(h.Buckets) {
		return h
	}
	d := Histogram{Count: h.Count - before.Count, SumS: h.SumS - before.SumS, Buckets: slices.Clone(h.Buckets)}
	for i := range d.Buckets {
		d.Buckets[i] -= min(before.Buckets[i], d.Buckets[i])
	}
	return d
}

// Mean is the average in seconds, 0 of nothing.
func (h Histogram) Mean() float64 {
	if h.Count == 0 {
		return 0
	}
	return h.SumS / float64(h.Count)
}

// Quantile estimates the duration in seconds below which a part q of all lie: linear within a bucket, and the highest
// bound above all bounds.
func (h Histogram) Quantile(q float64) float64 {
	var total, below uint64
	for _, c := range h.Buckets {
		total += c
	}
	rank := q * float64(total)
	for i, c := range h.Buckets {
		if c == 0 || float64(below+c) < rank {
			below += c
			continue
		}
		if i >= len(LatencyBounds) {
			return LatencyBounds[len(LatencyBounds)-1]
		}
		low := 0.0
		if i > 0 {
			low = LatencyBounds[i-1]
		}
		return low + (LatencyBounds[i]-low)*max(rank-float64(below), 0)/float64(c)
	}
	return 0
}

// LoadView is what GET /load answers: what one node has counted since its daemon started, from memory. Two of them make
// rates.
type LoadView struct {
	Node string `json:"node"`
	// seconds that it has been counting; smaller than before: another life
	AgeS         float64 `json:"age_s"`
	Transactions uint64  `json:"transactions"` // that this node saw committed
	Bytes        uint64  `json:"bytes"`        // of their log entries
	// by stage, StageTotal too, of a sample of the commits on this node as the leader
	Commits   map[string]Histogram `json:"commits"`
	LogWrites Histogram            `json:"log_writes"` // writes to this node's log, each with its fsync
	Disks     []DiskView           `json:"disks"`
	Large     *LargeView           `json:"large"` // null: none is under way

	Ports map[string]PortView `json:"ports,omitempty"` // of this node's router: rw, ro, split, stream
	// without a node, which follow this one's view and have shown a token
	Routers        int       `json:"routers,omitempty"`
	CertificateEnd time.Time `json:"certificate_end,omitzero"` // of this node's
}

// PortView is a port of a router now.
type PortView struct {
	Sessions int `json:"sessions"`
	Waiting  int `json:"waiting"` // connections and statements that wait for a server
	Tied     int `json:"tied"`    // of Sessions: those that a planned switchover ends
}

// DiskView is a file system that the node writes to.
type DiskView struct {
	Holds      string `json:"holds"` // "log", "data", or "log, data"
	Path       string `json:"path"`
	FreeBytes  uint64 `json:"free_bytes"` // that the node may still use
	TotalBytes uint64 `json:"total_bytes"`
}

// LargeView is a transaction too large for one log entry, of which a part is committed to the log already.
type LargeView struct {
	GTID    string  `json:"gtid"`
	Bytes   uint64  `json:"bytes"`    // so far
	Total   uint64  `json:"total"`    // of all of it; 0: not known
	AgeS    float64 `json:"age_s"`    // since its first piece was committed
	ReplayS float64 `json:"replay_s"` // about how long a follower will apply it
}

func (s *Server) load(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, http.StatusOK, s.opts.Backend.Load())
}

// Load is what the asked node has counted.
func (c *Client) Load(ctx context.Context) (v LoadView, err error) {
	return v, c.do(ctx, http.MethodGet, "/load", nil, &v)
}

// loadTimeout is how long another node may take to answer GET /load.
const loadTimeout = 900 * time.Millisecond
