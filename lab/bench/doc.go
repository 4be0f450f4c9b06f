// Package bench compares Trireme with its rivals on one machine, and measures the write gaps that faults cause.
//
// A suite answers one question. Its plan is a list of groups, each one fresh start of a system of lab/rivals, with the
// cells that are measured on it; the runner goes through all groups in each round (A B C A B C …), keeps a record of
// every cell as a line of JSON, so that an interrupted run can be resumed, and draws the reports. One cell of most
// suites is one load by sysbench:
//
//	warm-up -> wait until every server has applied -> sample -> sysbench -> raw TPS, lag left
//	        -> wait until every server has applied -> sustained TPS -> sample
//
// CPU per transaction counts what every host spent (mysqld and daemon, from /proc/<pid>/stat) from before the load
// until everything is applied, so that work put off is not work saved; divided by sysbench's own CPU per transaction,
// which cancels the drift of the machine.
//
// A cell of the suite failover is one fault under the load of lab/verify, with a time line and the longest time without
// an acknowledged write; one of rpo is a disaster after which lost rows are counted. Both need more of a system than
// others: lab.Breakable, lab.Mortal.
//
// All write JSON lines and Markdown; no figure in docs/benchmarks is typed manually.
package bench
