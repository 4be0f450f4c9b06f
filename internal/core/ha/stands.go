package ha

// Stands reports whether what an action rests on is still so when it is about to begin: mysqld may have died and the
// term may have moved on since the View was made, and the daemon may have been asked to stop. An action of an older term
// is dropped, except a fence (S7).
func Stands(a Action, term uint64, server ServerState, s Serving, stopping bool) bool {
	if a.Kind == Fence {
		return s.Phase != PhaseNone && s.Phase != PhaseFencing
	}
	if a.Term != term || stopping && begins(a.Kind) {
		return false
	}
	switch a.Kind {
	case StartServer:
		return server == ServerOff
	case Judge:
		return server == ServerUp
	case Seed:
		return server == ServerBehind
	case Promote:
		return server == ServerReady && s.Phase == PhaseNone
	case Restart:
		return s.Phase == PhaseNone
	case Switchover:
		return server == ServerReady && s.Phase == PhaseOpen && s.Term == a.Term
	}
	return true
}

// begins says whether an action begins what a daemon that was asked to stop would have to end again.
func begins(k Kind) bool {
	return k == StartServer || k == Judge || k == Seed || k == Promote || k == Restart
}
