package tpcc

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/go-sql-driver/mysql"
)

// Sizes of the initial population (clause 1.2.1).
const (
	DefaultItems     = 100_000
	DefaultCustomers = 3000 // per district

	districts = 10 // per warehouse
)

// DefaultDatabase is what Config.Database is when it is empty.
const DefaultDatabase = "tpcc"

// Target is a server, and how to log in.
type Target struct {
	Addr           string // host:port
	User, Password string
}

// Config is the same for Load, Run and Check of one database.
type Config struct {
	Targets    []Target // terminals are spread over them by warehouse; Load uses the first
	Database   string   // empty: DefaultDatabase
	Warehouses int
	// Terminals are connections of Run. Each prepares some 40 statements: beyond 400 a server needs a larger
	// max_prepared_stmt_count.
	Terminals int
	Seed      uint64
	// Items, and CustomersPerDistrict, which is also the number of orders per district; 0: DefaultItems,
	// DefaultCustomers. Less than that is for tests.
	Items, CustomersPerDistrict int
}

func (c Config) withDefaults() (Config, error) {
	if c.Database == "" {
		c.Database = DefaultDatabase
	}
	if c.Items == 0 {
		c.Items = DefaultItems
	}
	if c.CustomersPerDistrict == 0 {
		c.CustomersPerDistrict = DefaultCustomers
	}
	switch {
	case len(c.Targets) == 0:
		return c, errors.New("tpcc: no server is given")
	case c.Warehouses < 1:
		return c, fmt.Errorf("tpcc: %d warehouses: at least one is needed", c.Warehouses)
	case c.Items < maxOrderLines || c.CustomersPerDistrict < 10:
		return c, fmt.Errorf("tpcc: %d items and %d customers per district: at least %d and 10 are needed", c.Items,
			c.CustomersPerDistrict, maxOrderLines)
	}
	return c, nil
}

// firstNew is the first order of the initial population that is not delivered: the last 900 of 3000 are new (clause
// 4.3.3.1).
func (c Config) firstNew() int { return c.CustomersPerDistrict - c.CustomersPerDistrict*3/10 + 1 }

// driverConfig is how everything here logs in.
func (t Target) driverConfig(database string) *mysql.Config {
	m := mysql.NewConfig()
	m.Net, m.Addr, m.User, m.Passwd, m.DBName = "tcp", t.Addr, t.User, t.Password, database
	m.Timeout = dialLimit
	m.Logger = quiet{} // every error is returned as well
	return m
}

// quiet drops what the driver would log.
type quiet struct{}

func (quiet) Print(...any) {}

// parallel runs n functions at the same time and returns the first error; the others see ctx cancelled.
func parallel(ctx context.Context, n int, f func(ctx context.Context, i int) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			if err := f(ctx, i); err != nil {
				cancel(err)
			}
		})
	}
	wg.Wait()
	return context.Cause(ctx)
}
