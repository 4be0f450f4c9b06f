package drivers

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"trireme/internal/mysql/mysqld"
)

// program next to mysqld, such as mysql or mysqldump.
func program(name string) string {
	bin, err := mysqld.Find(context.Background(), "")
	if err != nil {
		return name
	}
	return filepath.Join(filepath.Dir(bin.Path), name)
}

// mysql runs the client with statements on its input, and returns the rows or the error text.
func (s settings) mysql(d door, user, statements string, options ...string) (string, error) {
	cmd := exec.Command(program("mysql"),
		append(s.login(d, user), append([]string{"--local-infile=1", "--default-character-set=utf8mb4", "-N", "-B"},
			options...)...)...)
	return s.output(cmd, statements)
}

// login is the options that every client program knows.
func (s settings) login(d door, user string) []string {
	return []string{"--no-defaults", "-h", d.Host, "-P", fmt.Sprint(d.Port), "-u", user, "--protocol=TCP"}
}

func (s settings) output(cmd *exec.Cmd, in string) (string, error) {
	var out, complaints bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(in), &out, &complaints
	cmd.Env = append(cmd.Environ(), "MYSQL_PWD="+s.Password)
	if err := cmd.Run(); err != nil {
		return out.String(), fmt.Errorf("%w: %s", err, strings.TrimSpace(complaints.String()))
	}
	return strings.TrimSpace(out.String()), nil
}

// programError is what the client program prints of an error.
type programError struct {
	code  int
	state string
	line  int // of its input; 0: it did not log in
	text  string
}

func (e *programError) Error() string { return e.text }

var programErrorLine = regexp.MustCompile(`ERROR (\d+) \((\w{5})\)(?: at line (\d+))?`)

// asProgramError reads the client's error text.
func asProgramError(err error) error {
	m := programErrorLine.FindStringSubmatch(err.Error())
	if m == nil {
		return err
	}
	e := &programError{state: m[2], text: err.Error()}
	e.code, _ = strconv.Atoi(m[1])
	e.line, _ = strconv.Atoi(m[3])
	return e
}

// loadMySQL runs the client once for each row, and once more to look for it.
func loadMySQL(s settings) writer {
	return writer{
		pause: 300 * time.Millisecond, // processes take CPU
		write: func(n, a int) (string, error) {
			steps := []string{"insert"}
			text := fmt.Sprintf("INSERT INTO drivers.load_mysql (n, a) VALUES (%d, %d);\n", n, a)
			if n%workers == 1 {
				steps = []string{"begin", "insert", "update", "commit"}
				text = "BEGIN;\n" + text + "UPDATE drivers.count_mysql SET v = v + 1;\nCOMMIT;\n"
			}
			_, err := s.mysql(s.Doors[0], s.User, text, "--skip-reconnect")
			if err == nil {
				return "", nil
			}
			err = asProgramError(err)
			var e *programError
			if errors.As(err, &e) && e.line > 0 && e.line <= len(steps) {
				return steps[e.line-1], err
			}
			return "connect", err
		},
		there: func(n, a int) (int, error) {
			got, err := s.mysql(s.Doors[0], s.User,
				fmt.Sprintf("SELECT /*+ trireme_consistency(BEFORE) */ COUNT(*) FROM drivers.load_mysql WHERE n = %d AND a = %d", n,
					a), "--skip-reconnect")
			if err != nil {
				return 0, asProgramError(err)
			}
			return strconv.Atoi(got)
		},
	}
}

func checkMySQL(s settings, d door) {
	gives := func(want, statements string) error {
		got, err := s.mysql(d, s.User, statements)
		return errors.Join(err, differ(strings.Fields(got), strings.Fields(want)))
	}
	fails := func(statement, number string) error {
		_, err := s.mysql(d, s.User, statement)
		if err == nil || !strings.Contains(err.Error(), "ERROR "+number) {
			return fmt.Errorf("%s: %w", statement, err)
		}
		return nil
	}
	for i, mode := range []string{"tls --ssl-mode=REQUIRED TLS", "plain --ssl-mode=DISABLED",
		"default --ssl-mode=PREFERRED TLS"} {
		m := strings.Fields(mode)
		report(d, "login-"+m[0], func() error {
			for range 2 { // the first login of an account on a server is a full one
				got, err := s.mysql(d, d.Fresh[i], "SHOW SESSION STATUS LIKE 'Ssl_cipher'", m[1], "--get-server-public-key")
				if encrypted := strings.Contains(got, "TLS"); err != nil || encrypted != (len(m) == 3) {
					return fmt.Errorf("%s: %w", got, err)
				}
			}
			return nil
		})
	}
	report(d,
		"charset", func() error { return gives(fmt.Sprintf("%X %s", text, text), "SELECT HEX('"+text+"'), '"+text+"'") })
	report(d, "prepared",
		func() error { return gives("42", "PREPARE s FROM 'SELECT ? + 1'; SET @v = 41; EXECUTE s USING @v") })
	report(d, "multi", func() error {
		return gives("1 2 3", "DELIMITER //\nSELECT 1; SELECT 2; SELECT 3//\n")
	})
	report(d, "variables",
		func() error { return gives("65536", "SET SESSION sort_buffer_size = 65536; SELECT @@sort_buffer_size") })
	report(d, "syntax-error", func() error { return fails("SELEC 1", "1064 (42000)") })
	for _, algorithm := range []string{"zlib", "zstd"} {
		report(d, algorithm, func() error { return compressed(s, d, algorithm) })
	}
	if !d.Writes {
		report(d, "read-only-error",
			func() error { return fails("CREATE TABLE drivers.no (id INT PRIMARY KEY)", "1290 (HY000)") })
		report(d, "dump", func() error { return dump(s, d) })
		return
	}
	t := "drivers.w_mysql_" + d.Name
	report(d, "writes", func() error {
		return errors.Join(
			gives("1 3", "CREATE TABLE "+t+" (id INT PRIMARY KEY, v VARCHAR(100)); INSERT INTO "+t+
				" VALUES (1, ''); BEGIN; INSERT INTO "+t+
				" VALUES (2, ''); ROLLBACK; BEGIN; INSERT INTO "+t+" VALUES (3, ''); COMMIT; SELECT id FROM "+t+" ORDER BY id"),
			fails("INSERT INTO "+t+" VALUES (1, '')", "1062 (23000)"),
			gives("100", "LOAD DATA LOCAL INFILE '"+s.CSV+"' INTO TABLE "+t+" FIELDS TERMINATED BY ','; SELECT COUNT(*) FROM "+t+
				" WHERE id >= 1000"))
	})
	report(d, "dump", func() error { return dump(s, d) })
}

// compressed sends and fetches what compresses well, and what hardly does.
func compressed(s settings, d door, algorithm string) error {
	var long strings.Builder
	for i := range 2000 {
		fmt.Fprintf(&long, "%s %x ", text, sha256.Sum256([]byte{byte(i), byte(i >> 8)}))
	}
	got, err := s.mysql(d, s.User, "SHOW SESSION STATUS LIKE 'Compression_algorithm'; SELECT '"+long.String()+"', SHA2('"+
		long.String()+"', 256);\n", "--compression-algorithms="+algorithm)
	return errors.Join(err, differ(got, fmt.Sprintf("Compression_algorithm\t%s\n%s\t%x", algorithm, long.String(),
		sha256.Sum256([]byte(long.String())))))
}

var dumpNoise = regexp.MustCompile(`(?m)^--.*$`)

// dump compares mysqldump's output through a door with that of the first one, which is mysqld itself.
func dump(s settings, d door) error {
	var texts []string
	for _, from := range []door{s.Doors[0], d} {
		cmd := exec.Command(program("mysqldump"), append(s.login(from, s.User), "--single-transaction", "--no-tablespaces",
			"--skip-dump-date", "--set-gtid-purged=OFF", "drivers", "dumped")...)
		got, err := s.output(cmd, "")
		if err != nil {
			return err
		}
		texts = append(texts, dumpNoise.ReplaceAllString(got, ""))
	}
	if len(texts[0]) < 1000 {
		return fmt.Errorf("a dump of %d bytes: %q", len(texts[0]), texts[0])
	}
	direct, here := strings.Split(texts[0], "\n"), strings.Split(texts[1], "\n")
	for i := range min(len(direct), len(here)) {
		if err := differ(here[i], direct[i]); err != nil {
			return fmt.Errorf("line %d: %w", i, err)
		}
	}
	return differ(len(here), len(direct))
}
