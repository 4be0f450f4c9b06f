// Package campaign hits a real system with a long, seeded sequence of faults while clients write to it, and checks over
// and over that nothing that was acknowledged is lost and that all nodes agree.
//
//	v, err := campaign.Run(ctx, campaign.Options{System: "trireme", Faults: 1000, Seed: 7, Say: os.Stdout})
//	v.OK() // no promise was broken, and the system recovered from every fault
//
// A Schedule is a pure function of its seed: what happens, to whom by role, how long, and after how much recovery the
// next comes. "To whom" is a role (the leader, a follower, a majority), because who leads depends on the servers. So a
// seed repeats the sequence of faults; the servers are real, and so are their timings: what exactly is under way when a
// fault comes is not the same twice.
//
// Faults come in batches. Each batch has tables of its own, so the checks stay quick however long a campaign lasts: at
// its end the writers stop, the system must become healthy, and every row, table and GTID set is compared (lab/verify).
// Only faults of batches that were checked are counted; each count is appended to a state file (State), which adds up
// campaigns as long as the commit path of Trireme does not change.
package campaign
