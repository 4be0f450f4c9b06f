package ha

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
)

// TestTranscripts runs testdata/decide/*. A transcript builds a View and shows what Decide makes of it:
//
//	view self=1 term=5 leader=1 now=10s lease=11s server=ready applied=100 commit=100 serving=open@5
//	peer 2 data ready applied=100 weight=50
//	----
//
// starts from an empty View (self=1, term=1, now=100s, weight=100, a voter, server=ready, serving=none, and a lease
// that has 800ms to go when self leads). `set` has the same arguments and changes the last View; a peer line replaces
// the peer of that id. A peer is a voter, live, with weight 100, and has answered the leader, unless it says learner,
// dead, weight= or unheard. It has a mysqld if it says data, and is named n<id>. handover=TERM@TIME>ID is the last
// attempt to hand over.
//
// `why-not id=ID`, `why-not-switchover id=ID` and `failover` show those functions' answers; a reason that bars is
// marked !. open=ID is who takes writes, lastopen=ID who did last. A peer's unready=CODE gives its own reason.
//
// `force [to=ID] [anyway]` is who gets leadership when an operator forces a failover.
//
// `candidates` lists them, best first. `campaign dead=ID` shows in which order and when all live voters, seen from one
// View, would campaign.
func TestTranscripts(t *testing.T) {
	datadriven.Walk(t, "testdata/decide", func(t *testing.T, path string) {
		var v View
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			switch d.Cmd {
			case "view":
				v = View{Now: 100 * time.Second, Self: 1, Name: "n1", Weight: 100, Voter: true, Raft: Raft{Term: 1, Voters: 3},
					Server: Server{State: ServerReady}}
				readView(t, d, &v)
				return show(v)
			case "set":
				readView(t, d, &v)
				return show(v)
			case "candidates":
				var b strings.Builder
				for _, p := range Candidates(v) {
					fmt.Fprintf(&b, "%s applied=%d weight=%d\n", p.Name, p.Applied, p.Weight)
				}
				return b.String()
			case "campaign":
				var dead uint64
				d.ScanArgs(t, "dead", &dead)
				return showCampaign(v, dead)
			case "why-not":
				var id uint64
				d.ScanArgs(t, "id", &id)
				return showReasons(WhyNot(v, id))
			case "why-not-switchover":
				var id uint64
				d.ScanArgs(t, "id", &id)
				return showReasons(WhyNotSwitchover(v, id))
			case "force":
				var to uint64
				d.MaybeScanArgs(t, "to", &to)
				to, why := ForcedFailover(v, to, d.HasArg("anyway"))
				if to == 0 {
					return showReasons([]Reason{why})
				}
				return peerName(v, to) + "\n"
			case "failover":
				f := Failover(v)
				if f.To == 0 {
					return "no node: " + f.Problem + "\n"
				}
				heavy := ""
				if f.Heavy > 0 {
					heavy = fmt.Sprintf(", %v of it heavy", f.Heavy)
				}
				return fmt.Sprintf("%s, %v to apply%s\n", peerName(v, f.To), f.Apply, heavy)
			}
			t.Fatalf("%s: unknown command %q", d.Pos, d.Cmd)
			return ""
		})
	})
}

func show(v View) string {
	st, acts := Decide(v)
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s\n", st.Name, st.Why)
	for _, a := range acts {
		fmt.Fprintf(&b, "-> %s\n", a)
	}
	return b.String()
}

func showReasons(rs []Reason) string {
	var b strings.Builder
	for _, r := range rs {
		mark := " "
		if r.Bars {
			mark = "!"
		}
		fmt.Fprintf(&b, "%s %s: %s\n", mark, r.Code, r.Text)
	}
	if b.Len() == 0 {
		return "nothing\n"
	}
	return b.String()
}

// showCampaign looks at the same figures from every live voter's side.
func showCampaign(v View, dead uint64) string {
	me := self(v)
	all := append([]Peer{me}, v.Peers...)
	var lines []string
	for _, p := range all {
		if p.ID == dead || !p.Voter || !p.Live {
			continue
		}
		w := v
		w.Self, w.Weight, w.Voter = p.ID, p.Weight, true
		w.Server = Server{State: ServerReady, Applied: p.Applied}
		switch {
		case !p.Data:
			w.Server.State = ServerAbsent
		case !p.Ready:
			w.Server.State = ServerOff
		}
		w.Peers = nil
		for _, q := range all {
			if q.ID != p.ID {
				w.Peers = append(w.Peers, q)
			}
		}
		lines = append(lines, fmt.Sprintf("%5v node %d", CampaignDelay(w, dead), p.ID))
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n") + "\n"
}

func readView(t *testing.T, d *datadriven.TestData, v *View) {
	t.Helper()
	lease := false
	for _, a := range d.CmdArgs {
		val := ""
		if len(a.Vals) > 0 {
			val = a.Vals[0]
		}
		lease = lease || a.Key == "lease"
		if err := readArg(v, a.Key, val); err != nil {
			t.Fatalf("%s: %s: %v", d.Pos, a, err)
		}
	}
	v.Raft.IsLeader = v.Raft.Leader == v.Self
	if v.Raft.IsLeader && !lease && d.Cmd == "view" {
		v.Raft.LeaseUntil = v.Now + 800*time.Millisecond
	}
	for line := range strings.Lines(d.Input) {
		p, err := readPeer(line)
		if err != nil {
			t.Fatalf("%s: %s: %v", d.Pos, strings.TrimSpace(line), err)
		}
		if i := slices.IndexFunc(v.Peers, func(q Peer) bool { return q.ID == p.ID }); i >= 0 {
			v.Peers[i] = p
		} else {
			v.Peers = append(v.Peers, p)
		}
	}
}

func readArg(v *View, key, val string) (err error) {
	num := func(p *uint64) {
		*p, err = strconv.ParseUint(val, 10, 64)
	}
	dur := func(p *time.Duration) {
		*p, err = time.ParseDuration(val)
	}
	switch key {
	case "self":
		num(&v.Self)
	case "now":
		dur(&v.Now)
	case "term":
		num(&v.Raft.Term)
	case "leader":
		num(&v.Raft.Leader)
	case "commit":
		num(&v.Raft.Commit)
	case "lease":
		dur(&v.Raft.LeaseUntil)
	case "transferee":
		num(&v.Raft.Transferee)
	case "asked":
		v.Raft.Asked = val == ""
	case "weight":
		v.Weight, err = strconv.Atoi(val)
	case "server":
		i := slices.Index(serverStateNames[:], val)
		if i < 0 {
			return fmt.Errorf("no such state of a server")
		}
		v.Server.State = ServerState(i)
	case "applied":
		num(&v.Server.Applied)
	case "stuck": // REASON or REASON@SINCE; empty: not stuck
		reason, since, at := strings.Cut(val, "@")
		v.Server.Stuck, v.Server.StuckSince = strings.ReplaceAll(reason, "_", " "), 0
		if at {
			v.Server.StuckSince, err = time.ParseDuration(since)
		}
	case "refused":
		v.Refused = strings.ReplaceAll(val, "_", " ")
	case "full":
		v.Raft.Full = strings.ReplaceAll(val, "_", " ")
	case "logstuck":
		v.Raft.Stuck = strings.ReplaceAll(val, "_", " ")
	case "retry":
		dur(&v.Server.RetryAt)
	case "serving":
		phase, term, at := strings.Cut(val, "@")
		i := slices.Index(phaseNames[:], phase)
		if i < 0 {
			return fmt.Errorf("no such phase")
		}
		v.Serving = Serving{Phase: Phase(i)}
		if at {
			v.Serving.Term, err = strconv.ParseUint(term, 10, 64)
		}
	case "drained":
		v.Serving.Drained = val == ""
	case "handover":
		if _, err = fmt.Sscanf(strings.NewReplacer("@", " ", ">", " ").Replace(val), "%d %s %d", &v.HandoverTriedTerm, &val,
			&v.HandoverTo); err == nil {
			dur(&v.HandoverAt)
		}
	case "fails":
		v.HandoverFails, err = strconv.Atoi(val)
	case "request":
		if val == "none" {
			v.Request = nil
			return nil
		}
		v.Request = &Transfer{}
		if val != "best" {
			num(&v.Request.To)
		}
	case "stopping":
		v.Stopping = val == ""
	case "paused":
		v.Paused = val == ""
	case "unsettled":
		v.Raft.Unsettled = true
	case "settled":
		v.Raft.Unsettled = false
	case "open":
		num(&v.Open)
	case "lastopen":
		num(&v.LastOpen)
	case "failback":
		dur(&v.FailbackAfter)
	case "leading":
		dur(&v.Raft.Since)
	case "steppingdown":
		v.Server.SteppingDown = val == ""
	case "applier":
		v.Server.Applier = strings.ReplaceAll(val, "_", " ")
	case "problem":
		v.Server.Problem = strings.ReplaceAll(val, "_", " ")
	case "voters":
		v.Raft.Voters, err = strconv.Atoi(val)
	default:
		return fmt.Errorf("unknown argument")
	}
	return err
}

func readPeer(line string) (Peer, error) {
	f := strings.Fields(line)
	if len(f) < 2 || f[0] != "peer" {
		return Peer{}, fmt.Errorf("a peer line begins with: peer ID")
	}
	p := Peer{Voter: true, Live: true, Weight: 100, Heard: true}
	var err error
	if p.ID, err = strconv.ParseUint(f[1], 10, 64); err != nil {
		return p, err
	}
	p.Name = "n" + f[1]
	for _, w := range f[2:] {
		key, val, _ := strings.Cut(w, "=")
		switch key {
		case "learner":
			p.Voter = false
		case "data":
			p.Data = true
		case "dead":
			p.Live = false
		case "unheard":
			p.Heard = false
		case "full":
			p.Full = true
		case "ready":
			p.Ready = true
		case "applied":
			p.Applied, err = strconv.ParseUint(val, 10, 64)
		case "weight":
			p.Weight, err = strconv.Atoi(val)
		case "since":
			p.Since, err = time.ParseDuration(val)
		case "rate":
			p.Rate, err = strconv.ParseFloat(val, 64)
		case "heavy":
			p.Heavy, err = time.ParseDuration(val)
		case "unready":
			p.Unready = bar(Code(val), "%s", "as it says itself")
		default:
			return p, fmt.Errorf("unknown word %q", w)
		}
		if err != nil {
			return p, err
		}
	}
	return p, nil
}
