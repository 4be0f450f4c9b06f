package gossip

import (
	"testing"
	"time"

	"trireme/internal/api"
)

// TestAgedLag plays a follower whose mysqld stops at 10 s, is asked for each lookInterval, tells others each second
// and at once when it begins to lag, and is not heard of any more from 15 s on: what another node says of it is never
// too little by more than LagTold and a look, and no more than that too much while it keeps up.
func TestAgedLag(t *testing.T) {
	const lookInterval = LagTold / 2
	const stop, silent, way = 10 * time.Second, 15 * time.Second, 20 * time.Millisecond
	var told, toldAt, next time.Duration
	lagging := false
	for now := time.Duration(0); now < 30*time.Second; now += 10 * time.Millisecond {
		truly := max(0, now-stop)
		if now%lookInterval == 0 && now < silent {
			if b := truly >= LagTold; b != lagging || now >= next {
				told, toldAt, next, lagging = truly, now+way, now+Interval, b
			}
		}
		if now < toldAt {
			continue // on its way
		}
		said := agedLag(told, now-toldAt)
		if low := truly - said; low > LagTold+lookInterval+way {
			t.Errorf("%v: said %v, too little by %v", now, said, low)
		}
		if high := said - truly; high > 0 && now < silent {
			t.Errorf("%v: said %v, too much by %v", now, said, high)
		}
	}
}

func TestUnbrought(t *testing.T) {
	var u notYetReceived
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

// TestAgedView: the age is added to a copy, and not to what a leader says.
func TestAgedView(t *testing.T) {
	told := 2.0
	at := new(Peer).now()
	p := &Peer{At: at - 5*time.Second,
		Status: Status{Member: api.MemberView{Role: api.RoleFollower, MySQL: &api.MySQLView{LagSeconds: &told}}}}
	if got := *p.agedView().MySQL.LagSeconds; got < 7 || got > 7+(p.now()-at).Seconds() || told != 2 {
		t.Error(got, told)
	}
	if p.Member.Role = api.RoleLeader; *p.agedView().MySQL.LagSeconds != 2 {
		t.Error("a leader lags")
	}
}
