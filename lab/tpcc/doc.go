// Package tpcc loads a MySQL server, or several, with the transactions of the TPC-C benchmark (Standard Specification,
// revision 5.11; the clauses named here and below are its own), and checks the specification's consistency conditions
// afterwards.
//
//	err := tpcc.Load(ctx, cfg, progress)                    // nine tables, about 80 MB per warehouse
//	r, err := tpcc.Run(ctx, cfg, 10*time.Second, time.Minute)
//	violations, err := tpcc.Check(ctx, cfg, db)             // also on a replica, also while others write
//
// # What follows the specification
//
// The tables and their initial population (clauses 1.3, 4.3); the non-uniform choice of customers, last names and items
// (2.1.6); the inputs and the database operations of all five transactions (2.4 to 2.8), each one transaction at
// REPEATABLE READ, which is at least what clause 3.4 asks for; 1 % of New-Orders rolled back because of an unused item
// number (2.4.1.4); 1 % of order lines and 15 % of payments from another warehouse (2.4.1.5, 2.5.1.2); the mix
// 45/43/4/4/4 (5.2.3), dealt from a shuffled deck; and the twelve consistency conditions (3.3.2).
//
// # What does not
//
// This is no audited TPC-C result: the figure is called tpmC-like, and compares systems that were measured by this
// driver only.
//
//   - Without keying and think times (5.2.5) a terminal begins its next transaction at once. A few terminals then load
//     a server that by the specification would need ten terminals, and no more than 12.86 New-Orders a minute, per
//     warehouse (4.2.1).
//   - A terminal is a connection of its own; nothing is displayed. What a transaction has to fetch for the display is
//     fetched, not formatted.
//   - A terminal's home is one warehouse (2.4.1.1) as long as there are at least as many terminals as warehouses; with
//     fewer, each one draws its warehouse from its share of them again for each transaction, so that all warehouses are
//     in use.
//   - With several servers a warehouse's terminals are all at one server, the best case for systems that write
//     everywhere.
//   - Delivery carries out its ten districts in one transaction at once, instead of queueing them (2.7.2).
//   - There are no foreign keys, as is usual for MySQL (sysbench-tpcc and tpcc-mysql leave them out by default): they
//     cost every system the same lookups. Every table has a primary key, because Group Replication wants one: HISTORY,
//     which has none by the specification, gets an AUTO_INCREMENT column.
//   - New-Orders that are rolled back by the user's error are listed and timed apart, and not counted in tpmC-like or
//     TPS.
//   - Condition 11 of clause 3.3.2 holds of a fresh population only; see Check for what is asked after a run.
//
// # Statements
//
// One statement per database operation and one round trip per statement, prepared once per connection: what
// sysbench-tpcc and tpcc-mysql send, no stored procedures, no batches. The client computes little and formats nothing,
// because it shares its cores with the servers it measures: it uses the driver without database/sql, sockets without
// the scheduler's bookkeeping (internal/base/nbio), and prepared statements, which cost both sides less than text.
//
// # Conflicts
//
// What a server aborts in order to go on (deadlock 1213, lock wait timeout 1205, certification 3101 of Group
// Replication) is rolled back and tried again with the same input. Latency counts from the first try, and each type of
// transaction says how often which of them happened. Any other error ends the run, a lost connection too.
package tpcc
