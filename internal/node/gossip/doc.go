// Package gossip is what the members tell each other of themselves, several times a second, and what a member knows
// of the others by that: how each of them is, for how long it has been silent, and who took writes last.
//
// What was heard is an immutable snapshot (Peers), replaced whole when something comes, so that readers need no lock.
// Nothing that safety hangs on rests on it but one: the lease follows the shortest election timeout of any member
// (S10).
package gossip
