package drivers

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"trireme/internal/mysql/mysqld"
)

// A client is a program of clients/ (or this test binary) that is run in two ways.
//
//	PROGRAM check FILE   tries everything at each door: a line "ok DOOR CHECK" or "FAIL DOOR CHECK text" each
//	PROGRAM load FILE    writes rows until its input ends, and says what it was told of each (change_test.go)
//
// FILE is a settings as JSON. The last line is "done".
type client struct {
	name     string
	command  func() (program string, args []string, err error) // err: it is not installed
	without  []string                                          // checks that the driver has no means for
	loadOnly bool
	soakOnly bool // scripts/drivers.sh soak installs it
}

// settings of one run of a client.
type settings struct {
	Driver   string `json:"driver"`
	User     string `json:"user"`
	Other    string `json:"other"` // an account to change to
	Password string `json:"password"`
	CSV      string `json:"csv"` // 100 lines for LOAD DATA
	Doors    []door `json:"doors"`
}

// door is one way in.
type door struct {
	Name   string    `json:"name"`
	Host   string    `json:"host"`
	Port   int       `json:"port"`
	Writes bool      `json:"writes"`
	Fresh  [3]string `json:"fresh"` // accounts that have never logged in
}

// checks that every client makes at every door, but for client.without; then "writes" or "read-only-error".
var checks = []string{"login-tls", "login-plain", "login-default", "charset", "prepared", "multi", "blob", "variables",
	"syntax-error", "reset"}

// moreOfMySQL is what the vendor's client tries besides.
var moreOfMySQL = []string{"zlib", "zstd", "dump"}

var clients = []client{
	{name: "mysql", command: itself, without: []string{"blob", "reset"}},
	{name: "go", command: itself, without: []string{"reset"}},
	{name: "pymysql", command: python("pymysql"), without: []string{"reset"}},
	{name: "connector", command: python("mysql.connector"), without: []string{"login-plain"}},
	{name: "sqlalchemy", command: python("sqlalchemy"), loadOnly: true},
	{name: "mysql2", command: node, without: []string{"login-default"}}, // it has no "preferred"
	{name: "mysqlclient", command: python("MySQLdb"), loadOnly: true, soakOnly: true},
	{name: "connectorj", command: java, loadOnly: true, soakOnly: true},
	{name: "hikari", command: java, loadOnly: true, soakOnly: true},
	{name: "sqlx", command: rust, loadOnly: true, soakOnly: true},
	{name: "php", command: php, loadOnly: true, soakOnly: true},
}

func itself() (string, []string, error) {
	program, err := os.Executable()
	return program, nil, err
}

// installed is the folder that scripts/drivers.sh fills.
func installed() string {
	return cmp.Or(os.Getenv("TRIREME_DRIVERS"), filepath.Join(mysqld.CacheDir(), "drivers"))
}

func python(module string) func() (string, []string, error) {
	return func() (string, []string, error) {
		program := filepath.Join(installed(), "python", "bin", "python")
		if out, err := exec.Command(program, "-c", "import "+module).CombinedOutput(); err != nil {
			return "", nil, fmt.Errorf("%w %s", err, out)
		}
		return program, []string{"clients/dbapi.py"}, nil
	}
}

func node() (string, []string, error) {
	program, err := exec.LookPath("node")
	if err != nil {
		return "", nil, err
	}
	if _, err := os.Stat(filepath.Join(nodeModules(), "mysql2")); err != nil {
		return "", nil, err
	}
	return program, []string{"clients/mysql2.js"}, nil
}

// java compiles its program each time it is started.
func java() (string, []string, error) {
	program, err := exec.LookPath("java")
	if err != nil {
		return "", nil, err
	}
	jars := filepath.Join(installed(), "java")
	if found, err := filepath.Glob(filepath.Join(jars, "HikariCP-*.jar")); len(found) == 0 {
		return "", nil, errors.Join(err, fmt.Errorf("no HikariCP in %s", jars))
	}
	return program, []string{"-Xmx128m", "-cp", filepath.Join(jars, "*"), "clients/java/Load.java"}, nil
}

func rust() (string, []string, error) {
	program := filepath.Join(installed(), "rust", "target", "debug", "sqlx-client")
	_, err := os.Stat(program)
	return program, nil, err
}

func php() (string, []string, error) {
	program, err := exec.LookPath("php")
	if err != nil {
		return "", nil, err
	}
	if out, err := exec.Command(program, "-r", "exit(in_array('mysql', PDO::getAvailableDrivers()) ? 0 : 1);").
		CombinedOutput(); err != nil {
		return "", nil, fmt.Errorf("PDO has no mysql: %w %s", err, out)
	}
	return program, []string{"clients/php.php"}, nil
}

func nodeModules() string { return filepath.Join(installed(), "node", "node_modules") }

// TestDrivers lets every client try everything at every door, all of them side by side.
func TestDrivers(t *testing.T) {
	t.Parallel()
	c := lease(t)
	leader := c.healthy()
	csv := filepath.Join(t.TempDir(), "rows.csv")
	var lines strings.Builder
	for i := range 100 {
		fmt.Fprintf(&lines, "%d,line %d\n", 1000+i, i)
	}
	must(t, os.WriteFile(csv, []byte(lines.String()), 0o644))
	passes, carries := c.Nodes()[0], c.carriers()[0]
	doors := []door{
		{Name: "direct", Host: leader.Host, Port: leader.Ports.MySQL, Writes: true},
		{Name: "rw", Host: passes.Host, Port: passes.Ports.RW, Writes: true},
		{Name: "ro", Host: passes.Host, Port: passes.Ports.RO},
		{Name: "carry", Host: carries.Host, Port: carries.Ports.RW, Writes: true},
		{Name: "split", Host: carries.Host, Port: carries.Ports.Split, Writes: true},
	}
	c.sql("DROP DATABASE IF EXISTS drivers", "CREATE DATABASE drivers",
		"CREATE TABLE drivers.dumped (id INT PRIMARY KEY, v VARCHAR(100))",
		"INSERT INTO drivers.dumped WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1000) SELECT i, '"+text+"' FROM n")
	runs := map[string]settings{}
	for _, cl := range clients {
		if !cl.loadOnly {
			runs[cl.name] = c.settings(cl.name, csv, doors)
		}
	}
	c.everywhere()
	for _, cl := range clients {
		if cl.loadOnly {
			continue
		}
		t.Run(cl.name, func(t *testing.T) {
			t.Parallel()
			program, args, err := cl.command()
			if err != nil {
				cannot(t, "%s is not installed (scripts/drivers.sh): %v", cl.name, err)
			}
			cmd := cl.start(t, "check", program, args, runs[cl.name])
			judge(t, cl, doors, cmd.lines(t))
		})
	}
}

// judge what a client said about each door.
func judge(t *testing.T, cl client, doors []door, said []string) {
	t.Helper()
	ok := map[string]bool{}
	for _, line := range said {
		if what, found := strings.CutPrefix(line, "ok "); found {
			ok[what] = true
		} else if line != "done" {
			t.Error(line)
		}
	}
	for _, d := range doors {
		last := "writes"
		if !d.Writes {
			last = "read-only-error"
		}
		tried := append(slices.Clone(checks), last)
		if cl.name == "mysql" {
			tried = append(tried, moreOfMySQL...)
		}
		for _, check := range tried {
			if !slices.Contains(cl.without, check) && !ok[d.Name+" "+check] {
				t.Errorf("%s: %s was not shown to work", d.Name, check)
			}
		}
	}
}

// settings makes the accounts of one client.
func (c *cluster) settings(name, csv string, doors []door) settings {
	c.t.Helper()
	s := c.State()
	out := settings{Driver: name, User: s.User, Password: s.Password, CSV: csv, Other: "other_" + name,
		Doors: slices.Clone(doors)}
	users := []string{out.Other}
	for i := range out.Doors {
		d := &out.Doors[i]
		for j := range d.Fresh {
			d.Fresh[j] = fmt.Sprintf("%s_%s_%d", name, d.Name, j)
			users = append(users, d.Fresh[j])
		}
	}
	var made []string
	for _, u := range users {
		made = append(made, "'"+u+"' IDENTIFIED BY '"+s.Password+"'")
	}
	c.sql("DROP USER IF EXISTS "+"'"+strings.Join(users, "', '")+"'", "CREATE USER "+strings.Join(made, ", "),
		"GRANT SELECT ON drivers.* TO '"+out.Other+"'")
	return out
}

// everywhere waits until all nodes have what was written so far.
func (c *cluster) everywhere() {
	c.t.Helper()
	mark := fmt.Sprintf("mark_%d", time.Now().UnixNano())
	c.sql("CREATE DATABASE " + mark)
	for _, n := range c.DataNodes() {
		db, err := c.Admin(n)
		must(c.t, err)
		eventually(c.t, healLimit, n.Name+" applies", func() error {
			_, err := db.ExecContext(c.t.Context(), "USE "+mark)
			return err
		})
		_ = db.Close()
	}
	c.sql("DROP DATABASE " + mark)
}

// running is a client at work.
type running struct {
	cmd   *exec.Cmd
	input io.Closer
	out   io.Reader
	err   strings.Builder
}

func (cl client) start(t *testing.T, mode, program string, args []string, s settings) *running {
	t.Helper()
	text, err := json.Marshal(s)
	must(t, err)
	file := filepath.Join(t.TempDir(), cl.name+".json")
	must(t, os.WriteFile(file, text, 0o600))
	ctx, cancel := context.WithTimeout(context.Background(), clientLimit)
	r := &running{cmd: exec.CommandContext(ctx, program, append(slices.Clone(args), mode, file)...)}
	r.cmd.Env = append(os.Environ(), "DRIVERS_NODE="+nodeModules(), "DRIVERS_CLIENT="+cl.name)
	r.cmd.Stderr = &r.err
	r.input, err = r.cmd.StdinPipe()
	must(t, err)
	r.out, err = r.cmd.StdoutPipe()
	must(t, err)
	must(t, r.cmd.Start())
	t.Cleanup(func() {
		cancel()
		_ = r.cmd.Wait()
		if t.Failed() && r.err.Len() > 0 {
			t.Logf("%s: %s", cl.name, r.err.String())
		}
	})
	return r
}

// lines of a client that ends by itself, "done" among them.
func (r *running) lines(t *testing.T) []string {
	t.Helper()
	var out []string
	for in := bufio.NewScanner(r.out); in.Scan(); {
		out = append(out, in.Text())
	}
	if !slices.Contains(out, "done") {
		t.Errorf("it did not come to its end: %s", r.err.String())
	}
	return out
}
