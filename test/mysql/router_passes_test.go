package mysql_test

import (
	"bytes"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"trireme/internal/access/router"
)

// routerPasses is a real server behind the router: whatever the protocol has to offer goes through, because nothing is
// looked at.
func routerPasses(t *testing.T, addr, root string) {
	socket := filepath.Join(t.TempDir(), "rw")
	r := start(t, router.Config{HoldTimeout: 200 * time.Millisecond, RWSocket: socket})
	target := router.Target{Name: "n1", Addr: addr, Epoch: "1"}

	t.Run("no leader", func(t *testing.T) {
		db := open(t, r.RWAddr(), root, "")
		var e *mysql.MySQLError
		if err := db.PingContext(t.Context()); !errors.As(err, &e) || e.Number != 1290 ||
			!strings.Contains(e.Message, "no leader accepts writes") {
			t.Fatalf("error %v", err)
		}
	})
	r.SetView(router.View{RW: &target})

	for name, params := range map[string]string{"plain": "", "TLS": "&tls=skip-verify", "compressed": "&compress=true"} {
		t.Run(name, func(t *testing.T) {
			db := open(t, r.RWAddr(), root, params)
			db.SetMaxOpenConns(1)
			var cipher, ignored string
			if err := db.QueryRowContext(t.Context(), "SHOW SESSION STATUS LIKE 'Ssl_cipher'").Scan(&ignored, &cipher); err != nil {
				t.Fatal(err)
			}
			if (cipher != "") != (name == "TLS") {
				t.Errorf("cipher %q", cipher)
			}
			throughAndBack(t, db)
		})
	}
	t.Run("unix socket", func(t *testing.T) {
		for range 2 { // with the account in the server's cache, and without
			db := socketDB(t, "root", root, socket)
			var cipher, ignored string
			if err := db.QueryRowContext(t.Context(), "SHOW SESSION STATUS LIKE 'Ssl_cipher'").Scan(&ignored, &cipher); err != nil || cipher == "" {
				t.Fatalf("cipher %q, %v", cipher, err)
			}
			if _, err := db.ExecContext(t.Context(), "FLUSH PRIVILEGES"); err != nil {
				t.Fatal(err)
			}
		}
	})
	t.Run("LOAD DATA LOCAL", func(t *testing.T) { loadData(t, open(t, r.RWAddr(), root, "")) })
	t.Run("cut", func(t *testing.T) { cutStatement(t, r, open(t, r.RWAddr(), root, "")) })
}

// throughAndBack sends a prepared statement with a parameter beyond one packet of 16 MiB, and several results in one
// answer.
func throughAndBack(t *testing.T, db *sql.DB) {
	stmt, err := db.PrepareContext(t.Context(), "SELECT SHA2(?, 256), ? + 1, ?")
	if err != nil {
		t.Fatal(err)
	}
	defer stmt.Close()
	big := bytes.Repeat([]byte("0123456789abcdef"), 17<<20/16)
	var sum string
	var n int
	var back []byte
	if err := stmt.QueryRowContext(t.Context(), big, 41, big).Scan(&sum, &n, &back); err != nil {
		t.Fatal(err)
	}
	var want string
	if err := db.QueryRowContext(t.Context(), "SELECT SHA2(REPEAT('0123456789abcdef', ?), 256)", len(big)/16).Scan(&want); err != nil {
		t.Fatal(err)
	}
	if sum != want || n != 42 || !bytes.Equal(back, big) {
		t.Errorf("sum %s, want %s; n %d; %d bytes back of %d", sum, want, n, len(back), len(big))
	}
	rows, err := db.QueryContext(t.Context(), "SELECT 1; SELECT 2")
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	sets := 1
	for rows.NextResultSet() {
		sets++
	}
	if sets != 2 || rows.Err() != nil {
		t.Errorf("%d result sets, %v", sets, rows.Err())
	}
}

func loadData(t *testing.T, db *sql.DB) {
	const lines = 50_000
	mysql.RegisterReaderHandler("numbers", func() io.Reader {
		var b bytes.Buffer
		for i := range lines {
			fmt.Fprintf(&b, "%d\n", i)
		}
		return &b
	})
	defer mysql.DeregisterReaderHandler("numbers")
	for _, q := range []string{"DROP DATABASE IF EXISTS d", "CREATE DATABASE d",
		"CREATE TABLE d.numbers (i INT PRIMARY KEY)", "LOAD DATA LOCAL INFILE 'Reader::numbers' INTO TABLE d.numbers"} {
		if _, err := db.ExecContext(t.Context(), q); err != nil {
			t.Fatal(err)
		}
	}
	var sum int
	if err := db.QueryRowContext(t.Context(), "SELECT SUM(i) FROM d.numbers").Scan(&sum); err != nil ||
		sum != lines*(lines-1)/2 {
		t.Errorf("sum %d, %v", sum, err)
	}
}

// cutStatement takes the role from the server while a statement runs: the client must hear of it at once.
func cutStatement(t *testing.T, r *router.Router, db *sql.DB) {
	ended := make(chan error, 1)
	go func() {
		_, err := db.ExecContext(t.Context(), "DO SLEEP(30)")
		ended <- err
	}()
	eventually(t, "the statement is on its way", func() bool { return r.Stats().RW.Open == 1 })
	r.SetView(router.View{})
	select {
	case err := <-ended:
		if err == nil {
			t.Error("the statement succeeded")
		}
	case <-time.After(limit):
		t.Error("the client was not told")
	}
}
