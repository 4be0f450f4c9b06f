package node

import (
	"testing"
	"time"

	"trireme/internal/api"
	"trireme/internal/ledger"
)

// TestAgedLag plays a follower whose mysqld stops at 10 s, is asked for each appliedInterval, tells others each second and at once when it falls
// behind, and is not heard of any more from 15 s on: what another node says of it is never too little by more than lagTold and a look, and no
// more than that too much while it keeps up.
func TestAgedLag(t *testing.T) {
	const stop, silent, way = 10 * time.Second, 15 * time.Second, 20 * time.Millisecond
	var told, toldAt, next time.Duration
	behind := false
	for now := time.Duration(0); now < 30*time.Second; now += 10 * time.Millisecond {
		truly := max(0, now-stop)
		if now%appliedInterval == 0 && now < silent {
			if b := truly >= lagTold; b != behind || now >= next {
				told, toldAt, next, behind = truly, now+way, now+statusInterval, b
			}
		}
		if now < toldAt {
			continue // on its way
		}
		said := agedLag(told, now-toldAt)
		if low := truly - said; low > lagTold+appliedInterval+way {
			t.Errorf("%v: said %v, too little by %v", now, said, low)
		}
		if high := said - truly; high > 0 && now < silent {
			t.Errorf("%v: said %v, too much by %v", now, said, high)
		}
	}
}

func TestUnbrought(t *testing.T) {
	var u unbrought
	u.told(10, 10, time.Second)
	if u.age(2*time.Second) != 0 {
		t.Error("it has everything")
	}
	for s := time.Duration(1); s <= 100; s++ { // a link that brings nothing
		u.told(10+uint64(s), 10, s*time.Second)
	}
	if u.age(101*time.Second) != 100*time.Second || len(u) != untold {
		t.Errorf("%v of %d", u.age(101*time.Second), len(u))
	}
	if u.have(12); u.age(101*time.Second) != 98*time.Second {
		t.Error(u.age(101 * time.Second))
	}
	if u.have(200); u.age(101*time.Second) != 0 {
		t.Error(u.age(101 * time.Second))
	}
}

// TestClockDifference: a peer's clock is known by the status that was on its way for the shortest time.
func TestClockDifference(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	const ahead, way = time.Hour, 30 * time.Millisecond
	var d clockDifference
	for i := range 2 * clockWindow {
		late := time.Duration(i%3) * 50 * time.Millisecond // on the way to here
		d.heard(now.Add(ahead), now.Add(way+late), way)
	}
	if got, known := d.get(); !known || got != -ahead {
		t.Fatalf("%v", got)
	}
}

// TestLagCounts: what is not applied, what was not brought, and a mysqld that says nothing.
func TestLagCounts(t *testing.T) {
	n := newTestNode(t)
	openTestLog(t, n)
	if lag, _ := n.lagLocked(); lag != 0 {
		t.Error(lag)
	}
	began := time.Now()
	n.srv.backlog = ledger.Backlog{Since: began, Committed: began.Add(-3 * time.Second), Bytes: 100}
	if lag, bytes := n.lagLocked(); lag < 3*time.Second || lag > 3*time.Second+time.Since(began) || bytes != 100 {
		t.Error(lag, bytes)
	}
	at := now()
	n.unbrought.told(7, 0, at-time.Minute)
	if lag, _ := n.lagLocked(); lag < time.Minute || lag > time.Minute+now()-at {
		t.Error(lag)
	}
}

// TestAgedView: the age is added to a copy, and not to what a leader says.
func TestAgedView(t *testing.T) {
	told := 2.0
	at := now()
	p := &peer{at: at - 5*time.Second, status: status{Member: api.MemberView{Role: api.RoleFollower, MySQL: &api.MySQLView{LagSeconds: &told}}}}
	if got := *p.agedView().MySQL.LagSeconds; got < 7 || got > 7+(now()-at).Seconds() || told != 2 {
		t.Error(got, told)
	}
	if p.status.Member.Role = api.RoleLeader; *p.agedView().MySQL.LagSeconds != 2 {
		t.Error("a leader lags")
	}
}
