package router

import (
	"slices"
	"strings"
	"testing"

	"trireme/internal/mysql/mysqlwire"
)

// underWay is a command that loses its server: %s is the id of a statement that was prepared before.
type underWay struct {
	before  []string // statements before it
	prepare string   // prepared before it
	command byte
	text    string
	sent    string // as wireServer has it; empty: text
}

func query(text string, before ...string) underWay {
	return underWay{before: before, command: comQuery, text: text}
}

func executed(text string, before ...string) underWay {
	return underWay{before: before, prepare: text, command: comStmtExecute, sent: "execute " + text}
}

// lose runs it and turns the view to another server while it is not answered.
func (u underWay) lose(t *testing.T, cfg Config) (r *Router, to *wireServer, c *mysqlwire.Client) {
	t.Helper()
	r, from, to, c := rawSession(t, cfg)
	for _, q := range u.before {
		if got := say(t, c, comQuery, q); got != 0 {
			t.Fatalf("%s: answer %d", q, got)
		}
	}
	text, sent := u.text, u.sent
	if u.prepare != "" {
		text = executeOf(prepare(t, c, u.prepare))
	}
	if sent == "" {
		sent = text
	}
	from.mu.Lock()
	from.hang, from.sent = sent, nil
	from.mu.Unlock()
	if err := c.WriteCommand(u.command, []byte(text)); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it is under way", func() bool { return slices.Contains(from.statements(), sent) })
	r.SetView(View{RW: to.target("2")})
	return r, to, c
}

// acknowledged is a transaction that is over.
var acknowledged = []string{"SET autocommit=0", "START TRANSACTION", "INSERT 1", "COMMIT"}

// What a pool or a framework sends after a COMMIT that was acknowledged must not be answered with SQLSTATE 40001: its
// client would repeat a transaction that is committed. Nothing is open, and nothing of it commits anything: it is
// carried out at the next server, once.
func TestSentAgain(t *testing.T) {
	for name, c := range map[string]struct {
		underWay
		want string // sent to the next server after what restores the session, and before "INSERT 2"
	}{
		"SET":                   {query("SET autocommit=1", acknowledged...), "SET autocommit=0, SET autocommit=1"},
		"SET again":             {query("SET autocommit=0", acknowledged...), "SET autocommit=0, SET autocommit=0"},
		"SET of what is set":    {query("SET a = @@a + 1", "SET a = 1"), "SET a = 1, SET a = @@a + 1"},
		"ROLLBACK":              {query("ROLLBACK", acknowledged...), "SET autocommit=0, ROLLBACK"},
		"ROLLBACK, prepared":    {executed("ROLLBACK", "INSERT 1"), "prepare ROLLBACK, execute ROLLBACK"},
		"empty COMMIT":          {query("COMMIT", acknowledged...), "SET autocommit=0, COMMIT"},
		"COMMIT of autocommit":  {query("COMMIT", "INSERT 1"), "COMMIT"},
		"COMMIT, prepared":      {executed("COMMIT", "INSERT 1"), "prepare COMMIT, execute COMMIT"},
		"BEGIN":                 {query("BEGIN", "INSERT 1"), "BEGIN"},
		"SET TRANSACTION":       {query("SET TRANSACTION READ ONLY", "INSERT 1"), "SET TRANSACTION READ ONLY"},
		"SELECT of no table":    {query("SELECT 1", "INSERT 1"), "SELECT 1"},
		"USE":                   {query("USE b", "USE a"), "USE a, USE b"},
		"COM_INIT_DB":           {underWay{nil, "", comInitDB, "b", "schema b"}, "schema b"},
		"COM_PING":              {underWay{acknowledged, "", comPing, "", "ping"}, "SET autocommit=0, ping"},
		"COM_STMT_PREPARE":      {underWay{nil, "", comStmtPrepare, "INSERT 1", "prepare INSERT 1"}, "prepare INSERT 1"},
		"COM_RESET_CONNECTION":  {underWay{acknowledged, "", comResetConnection, "", "reset"}, "SET autocommit=0, reset"},
		"it ends a transaction": {underWay{[]string{"START TRANSACTION"}, "", comResetConnection, "", "reset"}, "reset"},
	} {
		t.Run(name, func(t *testing.T) {
			r, to, client := c.lose(t, Config{})
			if got := hear(t, client); got != 0 {
				t.Errorf("answer %d after what was acknowledged", got)
			}
			if got := say(t, client, comQuery, "INSERT 2"); got != 0 {
				t.Errorf("answer %d", got)
			}
			if got := strings.Join(to.statements(), ", "); got != c.want+", INSERT 2" {
				t.Errorf("sent to the next server: %q", got)
			}
			if s := r.Stats().RW; s.RolledBack != 0 || s.Unknown != 0 || s.Carried != 1 {
				t.Errorf("%+v", s)
			}
		})
	}
}

// What may have committed is never sent twice, and what has lost a transaction is told so.
func TestNotSentAgain(t *testing.T) {
	const lost, unknown, ended = 1213, 3168, 1053
	for name, c := range map[string]struct {
		underWay
		want uint16
	}{
		"in a transaction: ROLLBACK TO":      {query("ROLLBACK TO s", "START TRANSACTION"), lost},
		"in a transaction: COMMIT":           {query("COMMIT", "START TRANSACTION"), unknown},
		"in a transaction: COMMIT, prepared": {executed("COMMIT", "START TRANSACTION"), unknown},
		"in a transaction: SET":              {query("SET autocommit=1", "START TRANSACTION"), unknown},
		"in a transaction: BEGIN":            {query("BEGIN", "START TRANSACTION"), unknown},
		"in a transaction: SELECT":           {query("SELECT 1", "START TRANSACTION"), lost},
		"in a transaction: ping":             {underWay{[]string{"START TRANSACTION"}, "", comPing, "", "ping"}, lost},
		"in a transaction: COM_STMT_PREPARE": {underWay{[]string{"START TRANSACTION"}, "", comStmtPrepare, "INSERT 1",
			"prepare INSERT 1"}, lost},
		"before a transaction: SET":            {query("SET a = 1", "SET TRANSACTION READ ONLY"), lost},
		"several, SET first":                   {query("SET a = 1; INSERT 1"), ended},
		"several, ROLLBACK first":              {query("ROLLBACK; INSERT 1"), unknown},
		"several, COMMIT last":                 {query("BEGIN; INSERT 1; COMMIT"), unknown},
		"INSERT":                               {query("INSERT 1"), unknown},
		"INSERT, prepared":                     {executed("INSERT 1"), unknown},
		"CREATE":                               {query("CREATE TABLE t"), unknown},
		"COMMIT AND CHAIN":                     {query("COMMIT AND CHAIN"), unknown},
		"COMMIT to some servers":               {query("/*!90000 COMMIT */"), unknown},
		"SELECT of a function":                 {query("SELECT f(1)"), unknown},
		"SELECT of a function of a quoted one": {query(`SELECT "f"(1)`), unknown},
		"SELECT of what may be a view":         {query("SELECT * FROM v"), lost},
		"TABLE":                                {query("TABLE v"), lost},
		"SELECT of a view after a quote":       {query(`SELECT 1 AS "\" FROM v -- "`), lost},
		"SET to what a function gives":         {query("SET a = f(1)"), unknown},
		"SET to what a view gives":             {query("SET a = (SELECT b FROM v)"), lost},
		"SET GLOBAL":                           {query("SET GLOBAL a = 1"), lost},
		"SET of a user variable":               {query("SET @a = 1"), ended},
		"more than is kept":                    {query("ROLLBACK -- " + strings.Repeat("x", inBytes)), lost},
		"of a session that is tied":            {query("ROLLBACK", "SET @a = 1"), ended},
	} {
		t.Run(name, func(t *testing.T) {
			_, to, client := c.lose(t, Config{})
			if got := hear(t, client); got != c.want {
				t.Errorf("answer %d, want %d", got, c.want)
			}
			if got := to.statements(); len(got) > 0 {
				t.Errorf("sent to the next server: %q", got)
			}
		})
	}
}

// With the option, a read that lost its server is done again, if it is one for sure; nothing else is.
func TestReplayedReads(t *testing.T) {
	for name, c := range map[string]struct {
		underWay
		want uint16
	}{
		"SELECT":                    {query("SELECT * FROM v"), 0},
		"SELECT, prepared":          {executed("SELECT * FROM v"), 0},
		"WITH":                      {query("WITH a AS (SELECT 1) SELECT * FROM a"), 0},
		"SELECT FOR UPDATE":         {query("SELECT * FROM v FOR UPDATE"), 1213},
		"SELECT INTO":               {query("SELECT * FROM v INTO OUTFILE 'x'"), 3168},
		"SELECT of a function":      {query("SELECT f(1) FROM v"), 3168},
		"of the server's own state": {query("SELECT * FROM performance_schema.threads"), 1213},
		"in a transaction":          {query("SELECT * FROM v", "START TRANSACTION"), 1213},
		"INSERT SELECT":             {query("INSERT INTO t SELECT * FROM v"), 3168},
		"several":                   {query("SELECT * FROM v; INSERT 1"), 3168},
	} {
		t.Run(name, func(t *testing.T) {
			_, to, client := c.lose(t, Config{ReplayReads: true})
			if got := hear(t, client); got != c.want {
				t.Errorf("answer %d, want %d", got, c.want)
			}
			if got := to.statements(); (len(got) > 0) != (c.want == 0) {
				t.Errorf("sent to the next server: %q", got)
			}
		})
	}
}

// Of what was answered in part the rest cannot be told, though it commits nothing.
func TestNotSentAgainBehindItsHead(t *testing.T) {
	r, from, to, c := rawSession(t, Config{})
	from.half = "SHOW a"
	if err := c.WriteCommand(comQuery, []byte("SHOW a")); err != nil {
		t.Fatal(err)
	}
	if p, err := c.ReadPacket(); err != nil || len(p) != 1 {
		t.Fatalf("%q, %v", p, err)
	}
	r.SetView(View{RW: to.target("2")})
	if got := hear(t, c); got != 1213 || len(to.statements()) > 0 {
		t.Errorf("answer %d, sent %q", got, to.statements())
	}
}

// What the lost statement sets is kept once, and goes along to a third server.
func TestSentAgainIsKept(t *testing.T) {
	r, to, c := query("SET a = 2", "SET a = 1").lose(t, Config{})
	if got := hear(t, c); got != 0 {
		t.Fatalf("answer %d", got)
	}
	third := newWireServer(t)
	r.SetView(View{RW: third.target("3")})
	say(t, c, comPing, "")
	if got, want := third.statements(), []string{"SET a = 1", "SET a = 2", "ping"}; !slices.Equal(got, want) {
		t.Errorf("sent %q to the third, %q to the second", got, to.statements())
	}
}

// A statement that was to be executed has the id that its client knows, at each server.
func TestSentAgainByItsID(t *testing.T) {
	r, from, to, c := rawSession(t, Config{})
	prepare(t, c, "INSERT 1")
	id := prepare(t, c, "ROLLBACK") // 2 at the first server, 1 at the next
	from.mu.Lock()
	from.hang = "execute ROLLBACK"
	from.mu.Unlock()
	if err := c.WriteCommand(comStmtExecute, []byte(executeOf(id))); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it is under way", func() bool { return slices.Contains(from.statements(), "execute ROLLBACK") })
	to.hang = "execute ROLLBACK"
	r.SetView(View{RW: to.target("2")})
	eventually(t, "it is under way again", func() bool { return slices.Contains(to.statements(), "execute ROLLBACK") })
	third := newWireServer(t)
	r.SetView(View{RW: third.target("3")})
	if got := hear(t, c); got != 0 {
		t.Fatalf("answer %d", got)
	}
	if got, want := third.statements(), []string{"prepare ROLLBACK", "execute ROLLBACK"}; !slices.Equal(got, want) {
		t.Errorf("sent %q", got)
	}
}

// While there is no leader, a lost command waits for the next leader, as a command does that comes then.
func TestSentAgainLater(t *testing.T) {
	r, from, to, c := rawSession(t, Config{})
	from.hang = "ROLLBACK"
	if err := c.WriteCommand(comQuery, []byte("ROLLBACK")); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it is under way", func() bool { return slices.Contains(from.statements(), "ROLLBACK") })
	r.SetView(View{})
	eventually(t, "it waits", func() bool { return r.Stats().RW.Held == 1 })
	r.SetView(View{RW: to.target("2")})
	if got := hear(t, c); got != 0 {
		t.Errorf("answer %d", got)
	}
}
