package advise

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"strings"
	"testing"

	"github.com/go-sql-driver/mysql"

	"trireme/internal/api"
)

// refuses is a server that refuses every login.
type refuses struct{ err error }

func (r refuses) Connect(context.Context) (driver.Conn, error) { return nil, r.err }
func (r refuses) Driver() driver.Driver                        { return nil }

// TestRefused: who lacks the account or a right is told the statement that helps, and other errors are left alone.
func TestRefused(t *testing.T) {
	const grant = "GRANT SELECT, PROCESS, TRIGGER ON *.* TO 'o\\'hara'"
	for number, advice := range map[uint16]string{1045: "CREATE USER 'o\\'hara' IDENTIFIED BY '…' REQUIRE SSL; " + grant,
		1698: grant,
		1044: grant, 1142: grant, 1227: grant, 2013: ""} {
		s := &server{"n1", "o'hara", sql.OpenDB(refuses{&mysql.MySQLError{Number: number, Message: "no"}})}
		_, err := s.rows(t.Context(), "SELECT 1")
		e, _ := errors.AsType[*api.Error](err)
		switch {
		case err == nil || !strings.Contains(err.Error(), "n1") || !strings.Contains(err.Error(), "Error "):
			t.Errorf("%d: %v does not name the server and its error", number, err)
		case (e != nil) != (advice != ""):
			t.Errorf("%d: %v", number, err)
		case e != nil && (e.Kind != api.KindForbidden || !strings.Contains(e.Advice, advice)):
			t.Errorf("%d: kind %s, advice %q, without %q", number, e.Kind, e.Advice, advice)
		}
	}
}

// TestDelayedIsNotAsked: a delayed learner may lack the account for as long as its delay is.
func TestDelayedIsNotAsked(t *testing.T) {
	node := func(name string) api.MemberView {
		return api.MemberView{Name: name, State: api.StateHealthy, MySQL: &api.MySQLView{Host: name, Port: 3306}}
	}
	late := node("late1")
	late.Delay = &api.DelayView{Seconds: 3600}
	o := Options{View: api.ClusterView{Leader: "n1", Members: []api.MemberView{late, node("n2"), node("n1")}}}
	servers, err := o.servers()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, s := range servers {
		names = append(names, s.name)
		_ = s.db.Close()
	}
	if got := strings.Join(names, " "); got != "n1 n2" {
		t.Errorf("%s are asked", got)
	}
}
