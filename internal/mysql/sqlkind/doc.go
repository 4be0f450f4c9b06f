// Package sqlkind tells from its text what kind of statement a QUERY event of the binary log holds, and of one that a
// client sends whether a server that takes no writes may run it (AccessOf) and what it does to the session (EffectOf).
//
// Classify looks at the first few tokens only, skipping white space and comments and reading version comments
// (/*!80000 … */) as text, so it costs the same for a long statement as for a short one. It is not a parser: text that
// is not SQL is Other. What must never be got wrong is which statements end or change a transaction (Begin, Commit,
// Rollback and the XA family), which name an account (Account: S5), and the xid of an XA statement.
//
// The package is pure: no I/O, no goroutine, no clock, no randomness.
package sqlkind
