package bench

import (
	"reflect"
	"strings"
	"testing"

	"trireme/lab/verify"
)

// TestTally counts on a server that has lost rows, kept one twice, and kept one of which the client knows nothing.
func TestTally(t *testing.T) {
	log := verify.NewLog(2)
	held := verify.Rows{{}}
	write := func(writer int, o verify.Outcome, rows int) {
		seq := log.Begin(writer)
		if o != verify.Pending {
			log.Settle(writer, seq, o)
		}
		if rows > 0 {
			held[0][verify.Attempt{Writer: writer, Seq: seq}] = rows
		}
	}
	write(0, verify.Acked, 1)
	write(0, verify.Acked, 0)
	write(0, verify.Acked, 2)
	write(1, verify.Acked, 0)
	write(1, verify.Unknown, 1)
	write(1, verify.Unknown, 0)
	write(1, verify.Failed, 0)
	write(1, verify.Pending, 0)
	v := map[string]float64{}
	tally(log, verify.JudgeRows(log, verify.Shape{Tables: 1}, map[string]verify.Rows{"n1": held}), v)
	if want := (map[string]float64{valAcked: 4, valLost: 2, valDoubled: 1}); !reflect.DeepEqual(v, want) {
		t.Errorf("%v, want %v", v, want)
	}
}

func TestWhoDies(t *testing.T) {
	for _, d := range disasters {
		for _, n := range []int{1, 3, 5} {
			hosts := []string{"leader", "b", "c", "d", "e"}[:n]
			dead := d.dead(hosts)
			if dead[0] != "leader" || strings.HasPrefix(d.name, "majority") && 2*len(dead) <= n {
				t.Errorf("%s of %d hosts: %v", d.name, n, dead)
			}
		}
	}
}

// TestRPOReport: losses are summed over the rounds, and what a human had to do is told.
func TestRPOReport(t *testing.T) {
	k := Key{Topology: noTopology, System: "semisync", Variant: "64 appliers", Case: "power off and leader lost",
		Threads: 32}
	var r Results
	for round, lost := range []float64{7, 0, 5} {
		k.Round = round + 1
		r.Records = append(r.Records, Record{Key: k, Values: map[string]float64{valAcked: 100, valLost: lost, valDoubled: 0,
			valOutage: 3}, Note: "promoted a replica"})
	}
	r.Records = append(r.Records, Record{Key: Key{System: "standalone", Case: "leader lost", Round: 1},
		Values: map[string]float64{valAcked: 9, valLost: 9}, Note: "no copy"})
	text := draw(t, rpoSuite, &r)
	for _, want := range []string{"| 3 | 300 | 12 | 2 | 0 | 3.0 | promoted a replica |",
		"| 1 | 9 | 9 | 1 | 0 | for ever | no copy |"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing in:\n%s", want, text)
		}
	}
}
