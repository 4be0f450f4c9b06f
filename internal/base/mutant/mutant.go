// Package mutant breaks the rules of docs/GUARANTEES.md one at a time, to show that the tests would notice. Each rule
// is broken at one place in the code, the one where it hurts most, and only in a program that was built for it. The
// same is done to a step of a switchover, without which nobody can write:
//
//	go test -tags mutant_s2 ./internal/core/consensus     # must fail
//
// Without a tag every constant here is false and the compiler leaves the mutations out. Two tags at once do not
// compile. scripts/mutants.sh runs what has to catch each of them.
package mutant

// Each constant says what the code does instead of keeping its rule.
const (
	S1      = broken == "S1"      // a commit is acknowledged when it has been proposed, not when it is committed
	S2      = broken == "S2"      // a voter answers, and counts itself, before the fsync
	S3      = broken == "S3"      // the feed gives what is in the log, committed or not
	S4      = broken == "S4"      // a fence switches semi-sync off before it looks who waits
	S5      = broken == "S5"      // mysqld starts on the binary log that it died with
	S5Judge = broken == "S5Judge" // every mysqld that has started is found good
	S6      = broken == "S6"      // writes open when the barrier is committed, whether or not what is below it is applied
	S7      = broken == "S7"      // what was proposed for one term is taken in a later one
	S8      = broken == "S8"      // the log is purged up to the commit index, even if a node still needs it
	S9      = broken == "S9"      // a node takes part in Raft only while its mysqld runs
	S10     = broken == "S10"     // a leader trusts its lease beyond the time at which another one may be elected
	S11     = broken == "S11"     // mysqld is judged by what the node happens to know, without a read index
	S12     = broken == "S12"     // a resumed stream hands out again what it had handed out
	S13     = broken == "S13"     // a broken invariant stops raft, and the node goes on
	Reopen  = broken == "Reopen"  // a switchover that failed leaves writes closed
)
