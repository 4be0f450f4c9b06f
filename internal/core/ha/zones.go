package ha

import "slices"

// ZoneLoss is what the loss of a whole zone would mean now.
type ZoneLoss struct {
	Zone   string
	Voters int    // of the cluster that are in it
	Quorum bool   // the voters elsewhere that answer are a majority
	Leads  bool   // the leader is in it
	Waits  bool   // a rule in force could not be met without it
	Kept   bool   // everything acknowledged is on disk elsewhere
	To     uint64 // who would lead if the leader is in it; 0: no node could
}

// ZoneLosses looks at every zone that has a voter. mustAck and zones are the commit rules in force.
func ZoneLosses(v View, zoneOf map[uint64]string, mustAck []uint64, zones int) []ZoneLoss {
	all := allBut(v, 0)
	var names []string
	for _, p := range all {
		if z := zoneOf[p.ID]; z != "" && p.Voter && !slices.Contains(names, z) {
			names = append(names, z)
		}
	}
	slices.Sort(names)
	var out []ZoneLoss
	for _, name := range names {
		l := ZoneLoss{Zone: name, Leads: v.Raft.Leader != 0 && zoneOf[v.Raft.Leader] == name}
		outside := func(id uint64) bool { return zoneOf[id] != name }
		live := 0
		var left []Peer
		for _, p := range all {
			if outside(p.ID) {
				left = append(left, p)
			}
			switch {
			case p.Voter && !outside(p.ID):
				l.Voters++
			case p.Voter && p.Live:
				live++
			}
		}
		l.Quorum = 2*live > v.Raft.Voters
		// A majority has every acknowledged commit: if the zone is not a majority itself, one of those members is
		// elsewhere.
		l.Kept = 2*l.Voters <= v.Raft.Voters || zones > 1 || slices.ContainsFunc(mustAck, outside)
		l.Waits = zones > 1 && len(names)-1 < zones ||
			slices.ContainsFunc(mustAck, func(id uint64) bool { return !outside(id) })
		if rank(left); l.Leads && l.Quorum && len(left) > 0 && left[0].canLead() {
			l.To = left[0].ID
		}
		out = append(out, l)
	}
	return out
}
