package demo

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"net"
	"time"

	"github.com/go-sql-driver/mysql"
)

// Login says where sessions connect and as whom.
type Login struct {
	// Addr returns the host:port of the next connection; asked again for each one.
	Addr     func() string
	User     string
	Password string
	// DialTimeout bounds connecting and logging in, StatementTimeout each statement. Zero: 2 s and 10 s.
	DialTimeout, StatementTimeout time.Duration
}

// WithDefaults fills in what is not set.
func (l Login) WithDefaults() Login {
	if l.DialTimeout == 0 {
		l.DialTimeout = 2 * time.Second
	}
	if l.StatementTimeout == 0 {
		l.StatementTimeout = 10 * time.Second
	}
	return l
}

// Fixed returns an Addr function of one address.
func Fixed(addr string) func() string { return func() string { return addr } }

// Connector makes connections that the login asks for.
func (l Login) Connector(database string) (driver.Connector, error) {
	l = l.WithDefaults()
	cfg := mysql.NewConfig()
	cfg.User, cfg.Passwd, cfg.DBName, cfg.Net = l.User, l.Password, database, "tcp"
	cfg.Addr = "by-dialer"
	cfg.InterpolateParams = true
	cfg.ReadTimeout, cfg.WriteTimeout = l.StatementTimeout, l.StatementTimeout
	cfg.Logger = quiet{}
	cfg.DialFunc = func(ctx context.Context, network, _ string) (net.Conn, error) {
		return (&net.Dialer{Timeout: l.DialTimeout}).DialContext(ctx, network, l.Addr())
	}
	return mysql.NewConnector(cfg)
}

// Open returns a pool over the login, for checkers and set-up.
func (l Login) Open(database string) (*sql.DB, error) {
	c, err := l.Connector(database)
	if err != nil {
		return nil, err
	}
	db := sql.OpenDB(c)
	db.SetMaxOpenConns(4)
	return db, nil
}

// quiet drops the driver's own log lines: every error reaches us as an error.
type quiet struct{}

func (quiet) Print(...any) {}
