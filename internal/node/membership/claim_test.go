package membership

import (
	"strings"
	"testing"
	"time"

	"trireme/internal/api"
	"trireme/internal/base/config"
	"trireme/internal/base/pki"
)

// TestJoinTokenIsForOneKey: who has seen a token cannot use it after its holder, who may repeat what was not answered.
func TestJoinTokenIsForOneKey(t *testing.T) {
	now := time.Now()
	token, rec, err := pki.NewJoinToken("db1:8008", pki.HashToken("ca"), now, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	c := &config.Cluster{JoinTokens: []config.JoinToken{{ID: "other"}, {ID: rec.ID, Hash: rec.Hash, Expires: rec.Expires,
		Name: "db4"}}}
	mine, theirs := []byte("my key"), []byte("another key")
	if i, err := claim(c, token, theirs, now); i != 1 || err != nil {
		t.Fatal("before its first use", i, err)
	}
	c.JoinTokens[1].Used, c.JoinTokens[1].CSR = 4, csrHash(mine)
	if i, err := claim(c, token, mine, now); i != 1 || err != nil {
		t.Error("its holder", i, err)
	}
	for what, claimed := range map[string]struct {
		csr []byte
		at  time.Time
	}{"another key": {theirs, now}, "no key": {nil, now}, "too late": {mine, now.Add(2 * time.Hour)}} {
		if _, err := claim(c, token, claimed.csr, claimed.at); api.KindOf(err) != api.KindUnauthorized {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// TestTokenOfAnotherKind: a logger's token is not taken for a node with a mysqld, nor the other way round, and the
// error says what to type instead.
func TestTokenOfAnotherKind(t *testing.T) {
	voter, learner, logger := config.RoleVoter, config.RoleLearner, config.RoleLogger
	for _, c := range []struct {
		joins, token string
		ok           bool
	}{{voter, voter, true}, {voter, learner, true}, {logger, logger, true}, {logger, voter, false},
		{voter, logger, false}} {
		err := sameKind(config.Member{Name: "db4", Role: c.joins}, c.token)
		if (err == nil) != c.ok || err != nil &&
			(api.KindOf(err) != api.KindInvalid || !strings.Contains(err.Error(), "trireme join --role "+c.token)) {
			t.Errorf("%s with the token of a %s: %v", c.joins, c.token, err)
		}
	}
}
