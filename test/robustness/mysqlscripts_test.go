package robustness

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"trireme/lab/needs"
)

// script is one of MySQL's own test scripts.
type script struct {
	suite, name string
	path        string // of the text, relative to the folder of all suites
}

func (s script) String() string { return s.suite + "." + s.name }

// scriptSuites are those about what SQL does. Others are about plugins, the X protocol, or list what a server has. Each
// script of rpl needs servers that replicate from each other, so the rule below lets none pass today.
var scriptSuites = []string{"main", "innodb", "gcol", "json", "gis", "parts", "funcs_1", "innodb_fts", "innodb_gis",
	"opt_trace", "collations", "rpl"}

// clientSuite are the tests of mysql_client_test, a program in C. Each counts as a script.
const clientSuite = "client"

// unfit are words of scripts that need more than one server as it is. Their order is that of the reasons that are told.
var unfit = []struct {
	why   string
	words []string // in lower case; a line break stands for the beginning of a line
}{
	{"ends the server", []string{"restart", "shutdown", "kill_mysqld", "start_mysqld", "expect_crash"}},
	{"needs a build for debugging", []string{"have_debug", "debug_sync", "@debug", ".debug", "set debug",
		"set session debug", "set global debug"}},
	{"runs other programs", []string{"\nexec ", "\nexec_in_background", "\nsystem ", "\nperl"}},
	{"is about replication, which is Trireme's", []string{"include/rpl", "replica", "slave", "binlog", "binary log",
		"relay", "gtid", "sql_log_bin", "have_log_bin", "log_status"}},
	{"needs plugins, which are each server's own", []string{"install ", "soname", "plugin", "component", "keyring",
		"encrypt", "clone"}},
	{"changes what the daemon decides about", []string{"read_only=", "read_only =", "offline_mode", "event_scheduler",
		"persist"}},
	{"is about files, and the servers of this test share one machine", []string{"outfile", "dumpfile", "load_file",
		"data directory", "datafile", "tablespace", "datadir", "redo_log", "undo"}},
	{"takes long", []string{"include/big_test", "include/have_big",
		"evict_everything"}}, // which inserts 131,072 rows, each by a statement of its own
}

var (
	scriptSource = regexp.MustCompile(`(?m)^source ([^\s;]+)`)
)

// scriptRule judges scripts by their texts and by the texts that these include.
type scriptRule struct {
	dir    string
	judged map[string]string // file to why it is unfit
}

// unfit says why a script cannot run on a server that has nothing but what a client can give it; "" if it can.
func (r scriptRule) unfit(s script) string {
	base := strings.TrimSuffix(filepath.Join(r.dir, s.path), ".test")
	for _, with := range []string{"-master.opt", "-slave.opt", "-client.opt", "-master.sh", ".cnf"} {
		if _, err := os.Stat(base + with); err == nil {
			return "needs options of its own"
		}
	}
	return r.file(s.path)
}

func (r scriptRule) file(path string) string {
	if why, known := r.judged[path]; known {
		return why
	}
	r.judged[path] = "" // of one that includes itself
	b, err := os.ReadFile(filepath.Join(r.dir, path))
	if err != nil {
		r.judged[path] = "includes what only its run knows"
		return r.judged[path]
	}
	text := commands(string(b))
	lower := strings.ToLower(text)
	for _, u := range unfit {
		if slices.ContainsFunc(u.words, func(word string) bool { return strings.Contains(lower, word) }) {
			r.judged[path] = u.why
			return u.why
		}
	}
	for _, m := range scriptSource.FindAllStringSubmatch(text, -1) {
		if why := r.file(r.included(path, m[1])); why != "" {
			r.judged[path] = why
			return why
		}
	}
	return ""
}

// commands is a script without comments, and without what may stand before a command of mysqltest.
func commands(text string) string {
	var out strings.Builder
	for line := range strings.Lines("\n" + text) {
		if line = strings.TrimLeft(line, "- \t"); line == "" || line[0] != '#' {
			out.WriteString(line)
		}
	}
	return out.String()
}

// included finds a file that a script names: in the folder of all suites, or in the one of its own.
func (r scriptRule) included(by, name string) string {
	for _, in := range []string{"", filepath.Dir(by), filepath.Dir(filepath.Dir(by))} {
		if _, err := os.Stat(filepath.Join(r.dir, in, name)); err == nil {
			return filepath.Join(in, name)
		}
	}
	return name
}

// scripts are those that fit, and how many do not, by reason.
func scripts(t testing.TB, dir string) (fit []script, left map[string]int) {
	t.Helper()
	rule := scriptRule{dir, map[string]string{}}
	left = map[string]int{}
	for _, suite := range scriptSuites {
		in := filepath.Join("suite", suite, "t")
		if suite == "main" {
			in = "t"
		}
		files, err := filepath.Glob(filepath.Join(dir, in, "*.test"))
		must(t, err)
		for _, f := range files {
			s := script{suite, strings.TrimSuffix(filepath.Base(f), ".test"), filepath.Join(in, filepath.Base(f))}
			if why := rule.unfit(s); why != "" {
				left[why]++
				continue
			}
			fit = append(fit, s)
		}
	}
	return fit, left
}

// clientTests are those of mysql_client_test.
func clientTests(t testing.TB, suites needs.SuitesDir) (list []script) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), suites.Program("mysql_client_test"), "--no-defaults", "--show-tests")
	out, err := cmd.Output()
	must(t, err)
	for _, name := range strings.Fields(string(out)) {
		if name = strings.Trim(name, ";"); strings.HasPrefix(name, "test_") {
			list = append(list, script{suite: clientSuite, name: name})
		}
	}
	return list
}

// scriptRunner runs scripts against one address, as root without a password.
type scriptRunner struct {
	suites needs.SuitesDir
	name   string // of the address, in reports
	port   int
	client int    // the port for mysql_client_test
	socket string // leads to port: scripts that connect to localhost ask for one
	dir    string // for what scripts write
}

// socketTo makes a unix socket that leads to a port. A server's own would do for the plain one, but its sessions would
// be those of other accounts than the router's, which come from 127.0.0.1.
func socketTo(t *testing.T, port int) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "trireme-socket-") // a test's own would be too long for the path of a socket
	must(t, err)
	l, err := net.Listen("unix", filepath.Join(dir, "s"))
	must(t, err)
	t.Cleanup(func() { _ = errors.Join(l.Close(), os.RemoveAll(dir)) })
	go func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer client.Close()
				server, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port))
				if err != nil {
					return
				}
				go func() {
					_, _ = io.Copy(server, client)
					_ = server.(*net.TCPConn).CloseWrite()
				}()
				_, _ = io.Copy(client, server)
				_ = server.Close()
			}()
		}
	}()
	return l.Addr().String()
}

// errScript is a script that did not come to its end. Its transcript ends with why.
var errScript = errors.New("the script ended early")

// run gives a script's transcript.
func (r scriptRunner) run(ctx context.Context, s script) (string, error) {
	tmp := filepath.Join(r.dir, "tmp")
	if err := errors.Join(os.RemoveAll(r.dir), os.MkdirAll(tmp, 0o755), os.Mkdir(filepath.Join(r.dir, "log"), 0o755),
		os.Symlink(filepath.Join(r.suites.Scripts(), "std_data"), filepath.Join(r.dir, "std_data"))); err != nil {
		return "", err
	}
	scripts := r.suites.Scripts()
	port := r.port
	if s.suite == clientSuite {
		port = r.client
	}
	args := []string{"--no-defaults", "--host=127.0.0.1", "--user=root", fmt.Sprint("--port=", port)}
	var cmd *exec.Cmd
	if s.suite == clientSuite {
		cmd = exec.CommandContext(ctx, r.suites.Program("mysql_client_test"), append(args, "--silent",
			"--vardir="+r.dir, s.name)...)
	} else {
		cmd = exec.CommandContext(ctx, r.suites.Program("mysqltest"), append(args, "--protocol=tcp", "--socket="+r.socket,
			"--database=test", "--basedir="+scripts+"/", "--tmpdir="+tmp, "--logdir="+filepath.Join(r.dir, "log"),
			"--test-file="+filepath.Join(scripts, s.path))...)
	}
	cmd.Dir = r.dir
	cmd.Env = append(os.Environ(), "MYSQL_TEST_DIR="+scripts, "MYSQL_TEST_DIR_ABS="+scripts, "MYSQL_TMP_DIR="+tmp,
		"MYSQLTEST_VARDIR="+r.dir, fmt.Sprint("MASTER_MYPORT=", port), fmt.Sprint("DEFAULT_MASTER_PORT=", port),
		"MASTER_MYSOCK="+filepath.Join(r.dir, "none"), "BIG_TEST=0")
	var out, bad bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &bad
	err := cmd.Run()
	if err == nil {
		return out.String(), nil
	}
	if ctx.Err() != nil {
		err = ctx.Err()
	}
	return out.String() + "\n" + bad.String(), fmt.Errorf("%w: %w", errScript, err)
}

// reasons reads a file of lines "PORT SCRIPT: reason". Empty ones and those that begin with # are for people.
func reasons(t testing.TB, path string) map[string]string {
	t.Helper()
	f, err := os.Open(path)
	must(t, err)
	defer f.Close()
	out := map[string]string{}
	for in := bufio.NewScanner(f); in.Scan(); {
		line := strings.TrimSpace(in.Text())
		if line == "" || line[0] == '#' {
			continue
		}
		what, why, _ := strings.Cut(line, ": ")
		if why == "" || out[what] != "" {
			t.Fatalf("%s: %q gives no reason, or a second one", path, line)
		}
		out[what] = why
	}
	return out
}

// firstDifference shows where two texts part.
func firstDifference(want, got string) string {
	a, b := strings.Split(want, "\n"), strings.Split(got, "\n")
	i := 0
	for i < min(len(a), len(b)) && a[i] == b[i] {
		i++
	}
	part := func(l []string) string { return strings.Join(l[max(0, min(i-6, len(l))):min(i+4, len(l))], "\n    ") }
	return fmt.Sprintf("line %d\n  one server:\n    %.1500s\n  here:\n    %.1500s", i+1, part(a), part(b))
}

// TestScriptRule: what a script includes counts, comments do not.
func TestScriptRule(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"t/plain.test":         "# restart_mysqld.inc is not needed\n--source include/wait.inc\nSELECT 1;\n",
		"t/restarts.test":      "SELECT 1;\n--source include/deep.inc\n",
		"t/options.test":       "SELECT 1;\n",
		"t/options-master.opt": "--x\n",
		"t/program.test":       "--exec $MYSQL_DUMP test\n",
		"include/wait.inc":     "let $i = 1;\n",
		"include/deep.inc":     "source include/deeper.inc;\n",
		"include/deeper.inc":   "source include/deep.inc;\n--source include/restart_mysqld.inc\n",
	} {
		must(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755))
		must(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	fit, left := scripts(t, dir)
	want := []script{{"main", "plain", "t/plain.test"}}
	if !slices.Equal(fit, want) || len(left) != 3 || left["ends the server"] != 1 {
		t.Errorf("%v, left out %v", fit, left)
	}
}
