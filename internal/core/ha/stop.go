package ha

// MayStop says whether a daemon that was asked to stop has nothing left to do before it ends mysqld: leadership has
// moved, or no other node can take over, or none should.
func MayStop(v View) bool {
	movable := len(Candidates(v)) > 0 && !v.Paused
	if v.Serving.Phase == PhaseOpen && !movable {
		return true
	}
	busy := v.Serving.Phase != PhaseNone || v.Server.State == ServerStarting || v.Server.State == ServerJudging
	return !busy && !(v.Raft.IsLeader && movable)
}
