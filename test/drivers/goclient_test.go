package drivers

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"reflect"
	"strings"
	"sync"
	"time"

	"github.com/go-sql-driver/mysql"
)

// text has characters of one to four bytes.
const text = "Grüße, мир, 漢字, 🐬"

// clientMain is this test binary as a client: MODE FILE.
func clientMain(name string, args []string) int {
	var s settings
	data, err := os.ReadFile(args[1])
	if err == nil {
		err = json.Unmarshal(data, &s)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	_ = mysql.SetLogger(quiet{})
	try := map[string]func(settings, door){"go": checkGo, "mysql": checkMySQL}[name]
	if args[0] == "load" {
		load(map[string]func(settings) writer{"go": loadGo, "mysql": loadMySQL}[name](s))
	} else {
		for _, d := range s.Doors {
			try(s, d)
		}
	}
	fmt.Println("done")
	return 0
}

// writer makes a row and looks for it, as change_test.go says.
type writer struct {
	pause time.Duration // of a worker, between two rows
	write func(n, a int) (step string, err error)
	there func(n, a int) (int, error)
}

// load writes from all workers until the input ends.
func load(w writer) {
	stop := make(chan struct{})
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		close(stop)
	}()
	var wg sync.WaitGroup
	for first := range workers {
		wg.Go(func() {
			n, a := first+1, 1
			for {
				select {
				case <-stop:
					return
				default:
				}
				if w.attempt(n, a) {
					a++
					continue
				}
				n, a = n+workers, 1
				<-time.After(w.pause)
			}
		})
	}
	wg.Wait()
}

// attempt says what became of a row. again: repeat it.
func (w writer) attempt(n, a int) (again bool) {
	if step, err := w.write(n, a); err != nil {
		told, again := toldGo(err)
		fmt.Println("err", n, a, step, told)
		return again
	}
	fmt.Println("ack", n, a)
	if got, err := w.there(n, a); err != nil {
		told, _ := toldGo(err)
		step := "read"
		if e, ok := errors.AsType[*programError](err); ok && e.line == 0 {
			step = loginStep
		}
		fmt.Println("late", step, told)
	} else if got != 1 {
		fmt.Println("miss", n, a)
	}
	return false
}

// toldGo is CODE STATE text of an error, and whether it asks for another attempt.
func toldGo(err error) (told string, again bool) {
	code, state := 0, "-"
	var server *mysql.MySQLError
	var program *programError
	switch {
	case errors.As(err, &server):
		code, state = int(server.Number), string(server.SQLState[:])
	case errors.As(err, &program):
		code, state = program.code, program.state
	}
	return fmt.Sprintf("%d %s %s", code, state, strings.ReplaceAll(err.Error(), "\n", " ")), state == "40001"
}

// report prints the result of one check.
func report(d door, what string, f func() error) {
	if err := f(); err != nil {
		fmt.Println("FAIL", d.Name, what, strings.ReplaceAll(err.Error(), "\n", " "))
		return
	}
	fmt.Println("ok", d.Name, what)
}

func differ(got, want any) error {
	if !reflect.DeepEqual(got, want) {
		return fmt.Errorf("%.200q, want %.200q", fmt.Sprint(got), fmt.Sprint(want))
	}
	return nil
}

// openGo opens a pool of one connection with go-sql-driver.
func (s settings) openGo(d door, user, tls string) *sql.DB {
	cfg := mysql.NewConfig()
	cfg.User, cfg.Passwd, cfg.Net, cfg.Addr = user, s.Password, "tcp", fmt.Sprintf("%s:%d", d.Host, d.Port)
	cfg.TLSConfig, cfg.MultiStatements = tls, true
	cfg.Timeout, cfg.ReadTimeout, cfg.WriteTimeout = dialLimit, statementLimit, statementLimit
	cfg.MaxAllowedPacket = 64 << 20
	db, err := sql.Open("mysql", cfg.FormatDSN())
	if err != nil {
		panic(err) // the DSN was made just above
	}
	db.SetMaxOpenConns(1)
	return db
}

// loadGo writes through database/sql's pool.
func loadGo(s settings) writer {
	db := s.openGo(s.Doors[0], s.User, "preferred")
	db.SetMaxOpenConns(workers)
	db.SetMaxIdleConns(workers)
	const insert = "INSERT INTO drivers.load_go (n, a) VALUES (?, ?)"
	stmt := sync.OnceValues(func() (*sql.Stmt, error) { return db.Prepare(insert) })
	text := func(n, a int) string { return fmt.Sprintf("INSERT INTO drivers.load_go (n, a) VALUES (%d, %d)", n, a) }
	return writer{
		pause: 50 * time.Millisecond,
		write: func(n, a int) (string, error) {
			switch n % workers {
			case 1:
				return transactionGo(db, text(n, a))
			case 2:
				_, err := db.Exec(text(n, a))
				return "insert", err
			}
			st, err := stmt()
			if err != nil {
				return "prepare", err
			}
			_, err = st.Exec(n, a)
			return "insert", err
		},
		there: func(n, a int) (got int, err error) {
			err = db.QueryRow("SELECT /*+ trireme_consistency(BEFORE) */ COUNT(*) FROM drivers.load_go WHERE n = ? AND a = ?", n,
				a).Scan(&got)
			return got, err
		},
	}
}

func transactionGo(db *sql.DB, insert string) (step string, err error) {
	tx, err := db.Begin()
	if err != nil {
		return "begin", err
	}
	defer tx.Rollback()
	if _, err := tx.Exec(insert); err != nil {
		return "insert", err
	}
	if _, err := tx.Exec("UPDATE drivers.count_go SET v = v + 1"); err != nil {
		return "update", err
	}
	return "commit", tx.Commit()
}

func checkGo(s settings, d door) {
	ctx := context.Background()
	for i, mode := range []struct{ name, tls, cipher string }{{"tls", "skip-verify", "TLS"}, {"plain", "false", ""},
		{"default", "preferred", "TLS"}} {
		report(d, "login-"+mode.name, func() error {
			for range 2 { // the first login of an account on a server is a full one
				db := s.openGo(d, d.Fresh[i], mode.tls)
				defer db.Close()
				var name, cipher string
				if err := db.QueryRow("SHOW SESSION STATUS LIKE 'Ssl_cipher'").Scan(&name, &cipher); err != nil {
					return err
				}
				if (cipher != "") != (mode.cipher != "") {
					return fmt.Errorf("the cipher is %q", cipher)
				}
			}
			return nil
		})
	}
	db := s.openGo(d, s.User, "preferred")
	defer db.Close()
	same := func(want any, query string, args ...any) error {
		got := reflect.New(reflect.TypeOf(want))
		if err := db.QueryRowContext(ctx, query, args...).Scan(got.Interface()); err != nil {
			return err
		}
		return differ(got.Elem().Interface(), want)
	}
	report(d, "charset", func() error { return same(text, "SELECT '"+text+"'") })
	report(d, "prepared",
		func() error { return errors.Join(same(text, "SELECT ?", text), same(int64(42), "SELECT ? + 1", 41)) })
	report(d, "multi", func() error { return multiGo(ctx, db) })
	report(d, "blob", func() error { return same(string(blob()), "SELECT ?", blob()) })
	report(d, "variables", func() error {
		_, err := db.Exec("SET SESSION sort_buffer_size = 65536")
		return errors.Join(err, same(65536, "SELECT @@sort_buffer_size"))
	})
	report(d, "syntax-error", func() error { return failsGo(db, "SELEC 1", 1064, "42000") })
	if d.Writes {
		report(d, "writes", func() error { return writesGo(s, d, db, same) })
		return
	}
	report(d, "read-only-error",
		func() error { return failsGo(db, "CREATE TABLE drivers.no (id INT PRIMARY KEY)", 1290, "HY000") })
}

func blob() []byte { return []byte(strings.Repeat("0123456789abcdef", 20<<20/16)) }

func multiGo(ctx context.Context, db *sql.DB) error {
	rows, err := db.QueryContext(ctx, "SELECT 1; SELECT 2; SELECT 3")
	if err != nil {
		return err
	}
	defer rows.Close()
	var got []int
	for more := true; more; more = rows.NextResultSet() {
		for rows.Next() {
			var n int
			if err := rows.Scan(&n); err != nil {
				return err
			}
			got = append(got, n)
		}
	}
	return errors.Join(rows.Err(), differ(got, []int{1, 2, 3}))
}

func failsGo(db *sql.DB, query string, number uint16, state string) error {
	_, err := db.Exec(query)
	var e *mysql.MySQLError
	if !errors.As(err, &e) {
		return fmt.Errorf("%s: %w", query, err)
	}
	return differ([]any{e.Number, string(e.SQLState[:])}, []any{number, state})
}

func writesGo(s settings, d door, db *sql.DB, same func(any, string, ...any) error) error {
	t := "drivers.w_go_" + d.Name
	exec := func(q string, args ...any) error { _, err := db.Exec(q, args...); return err }
	if err := errors.Join(exec("CREATE TABLE "+t+" (id INT PRIMARY KEY, v LONGTEXT) CHARSET utf8mb4"),
		exec("INSERT INTO "+t+" VALUES (1, ?)", text), same(fmt.Sprintf("%X", text), "SELECT HEX(v) FROM "+t),
		failsGo(db, "INSERT INTO "+t+" VALUES (1, '')", 1062, "23000")); err != nil {
		return err
	}
	for i, end := range []func(*sql.Tx) error{(*sql.Tx).Rollback, (*sql.Tx).Commit} {
		tx, err := db.Begin()
		if err != nil {
			return err
		}
		_, err = tx.Exec(fmt.Sprintf("INSERT INTO %s VALUES (%d, '')", t, 2+i))
		if err := errors.Join(err, end(tx)); err != nil {
			return err
		}
	}
	mysql.RegisterLocalFile(s.CSV)
	return errors.Join(same("1,3", "SELECT GROUP_CONCAT(id ORDER BY id) FROM "+t),
		exec("LOAD DATA LOCAL INFILE '"+s.CSV+"' INTO TABLE "+t+" FIELDS TERMINATED BY ','"),
		same(100, "SELECT COUNT(*) FROM "+t+" WHERE id >= 1000"),
		exec("INSERT INTO "+t+" VALUES (4, ?)", blob()), same(20<<20, "SELECT LENGTH(v) FROM "+t+" WHERE id = 4"))
}
