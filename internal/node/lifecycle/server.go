package lifecycle

import (
	"errors"
	"fmt"
	"time"

	"trireme/internal/core/ha"
	"trireme/internal/mysql/mysqld"
)

// Pauses before the next attempt.
const (
	startRetry   = 2 * time.Second
	seedRetry    = 2 * time.Second
	judgeRetry   = time.Second
	promoteRetry = 2 * time.Second
)

// Server is this member's mysqld as far as recovery has come. The zero value is a logger's, which has none. The lock of
// Lives guards it. Only its methods change the state:
//
//	off -> starting -> up -> judging -> ready -> dying -> off
//	 ^        |        ^       | |        | \-> up (to be judged again)
//	 |<-------'        '-------' |        |
//	 |                           |        v
//	 |                           +-> behind, broken -> seeding -> off, behind
//
// A life that ends leads to off from any state but seeding, whose life is given up first.
type Server struct {
	state   ha.ServerState
	life    *Life
	hung    Stuck // why it cannot serve, seen by Probe
	log     Stuck // why the raft log makes no progress, likewise; not of this life alone
	retryAt time.Duration
	fails   int
	died    int           // of the last fails, how many in a row were deaths of mysqld during its start
	problem string        // of the last failed start, judgement or seeding
	ended   string        // why the life has ended, if that is known
	replace string        // why a copy has to replace the data, in the state ServerBehind
	left    bool          // in the state ServerUp: it is not fed, and is to become a plain server; see LeaveFeed
	readyAt time.Duration // when state became ServerReady
	now     time.Duration // of the change that is made; see Lives.Change
}

// State is where it is.
func (s *Server) State() ha.ServerState { return s.state }

// Life is the one that runs; nil: none.
func (s *Server) Life() *Life { return s.life }

// Problem is why the last start, judgement or seeding failed, or the data is not used.
func (s *Server) Problem() string { return s.problem }

// Stuck is why mysqld cannot serve although it is alive, empty if it can; since is set when time may heal it.
func (s *Server) Stuck() (why string, since time.Duration) {
	if s.life != nil && s.state != ha.ServerDying {
		if why := s.life.Stalled(); why != "" {
			return why, 0
		}
	}
	return s.hung.Why, s.hung.Since
}

// View is what the policy sees of it. The rest is the caller's.
func (s *Server) View() ha.Server {
	why, since := s.Stuck()
	return ha.Server{State: s.state, Stuck: why, StuckSince: since, Problem: s.problem, Ended: s.ended,
		RetryAt: s.retryAt, Since: s.readyAt}
}

// Off: there is no process.
func (s *Server) Off() { s.state = ha.ServerOff }

// Starting: a start is under way.
func (s *Server) Starting() { s.state = ha.ServerStarting }

// Started: a life has begun.
func (s *Server) Started(l *Life) { *s = Server{state: ha.ServerUp, life: l, log: s.log, now: s.now} }

// StartFailed has the next attempt wait a little longer each time. node is this one's name.
func (s *Server) StartFailed(err error, node string) {
	s.state, s.life = ha.ServerOff, nil
	s.waitLonger(startRetry)
	if s.died++; !errors.Is(err, mysqld.ErrExited) {
		s.died = 0
	}
	s.problem = startProblem(err, s.died, node)
}

// Fails is how many attempts in a row have failed.
func (s *Server) Fails() int { return s.fails }

func (s *Server) waitLonger(pause time.Duration) {
	s.fails++
	s.retryAt = s.now + pause*time.Duration(min(s.fails, 10))
}

// stillbornLimit is after how many deaths during a start no more hope is placed in the next one.
const stillbornLimit = 3

// startProblem words why mysqld did not start, for status, why-not and the log. One that dies again and again before it
// answers does so because of what is on its disk or in its settings, and no further attempt helps: torn or rotted pages
// are InnoDB's, and only another node has them whole.
func startProblem(err error, died int, node string) string {
	if died < stillbornLimit {
		return err.Error()
	}
	return fmt.Sprintf("mysqld has died %d times in a row while it started. If its own words below are about damaged data, `trireme reinit %s` throws it away and "+
		"copies another node's: %v", died, node, err)
}

// Judging: a judgement is under way.
func (s *Server) Judging() { s.state = ha.ServerJudging }

// Unjudged: the judgement failed, or does not hold any more, and is made again in a moment.
func (s *Server) Unjudged(why string) {
	s.state, s.left, s.retryAt, s.problem = ha.ServerUp, false, s.now+judgeRetry, why
}

// JudgeAgain has it judged at once.
func (s *Server) JudgeAgain() { s.state, s.left, s.retryAt = ha.ServerUp, false, 0 }

// Leave takes it out of service: it is made ready to be a plain server, without the feed. If the cluster has not ended
// after limit, it is judged, and thereby fed, again.
func (s *Server) Leave(limit time.Duration) {
	s.state, s.left, s.retryAt = ha.ServerUp, true, s.now+limit
	s.problem = "the cluster is being left: it is ready to be a plain server"
}

// Stay takes Leave back, if that still holds.
func (s *Server) Stay() {
	if s.HasLeft() {
		s.JudgeAgain()
	}
}

// HasLeft says whether Leave still holds.
func (s *Server) HasLeft() bool { return s.state == ha.ServerUp && s.left }

// Ready: it is judged and fed.
func (s *Server) Ready() { s.state, s.fails, s.problem, s.readyAt = ha.ServerReady, 0, "", s.now }

// Broken: its data does not match the committed log.
func (s *Server) Broken(why string) { s.state, s.problem = ha.ServerBroken, why }

// Behind: a copy of another node's data has to replace its own.
func (s *Server) Behind(why string) {
	s.state, s.retryAt, s.fails, s.died = ha.ServerBehind, 0, 0, 0
	s.problem, s.replace = why, why
}

// Seeding: the copy is under way.
func (s *Server) Seeding() { s.state = ha.ServerSeeding }

// Seeded: the copy is there, and may be started.
func (s *Server) Seeded() {
	s.state, s.problem, s.fails, s.died, s.retryAt = ha.ServerOff, "", 0, 0, 0
}

// SeedFailed has the next attempt wait a little longer each time.
func (s *Server) SeedFailed(err error) {
	s.state, s.problem = ha.ServerBehind, err.Error()+"; "+s.replace
	s.waitLonger(seedRetry)
}

// PromotionFailed has the next attempt wait.
func (s *Server) PromotionFailed() { s.retryAt = s.now + promoteRetry }

// LogStuck is why the raft log makes no progress; empty: it does.
func (s *Server) LogStuck() string { return s.log.Why }

// Probed notes what Probe found, and says whether the reasons are others than before.
func (s *Server) Probed(hung, log Stuck) (changed bool) {
	changed = s.hung.Why != hung.Why || s.log.Why != log.Why
	s.hung, s.log = hung, log
	return changed
}

// Restarting: somebody is about to end it.
func (s *Server) Restarting() { s.state = ha.ServerDying }

// Dying: it was killed, or is ending.
func (s *Server) Dying() { s.state, s.hung = ha.ServerDying, Stuck{} }

// Dead: its life has ended.
func (s *Server) Dead() { s.state, s.life, s.hung = ha.ServerOff, nil, Stuck{} }

// EndedBecause is called before Dying and Dead where the reason is known.
func (s *Server) EndedBecause(why string) { s.ended = why }
