// Package wan emulates hosts and the links between them on one machine: each host is a network namespace with an
// address of its own, and what they send each other is delayed, lost, slowed down or cut in user space. The kernel's
// own tool for it, sch_netem, is not needed, nor any program.
//
//	topo, _ := wan.Load("two-regions")
//	n, err := wan.New(topo, []string{"n1", "n2", "n3"})
//	defer n.Close()
//	n.Host("n1").Do(func() error { … })  // on a thread inside the host: sockets and children made there belong to it
//	n.CutOneWay("n1", "n2")              // faults: Cut, CutOneWay, Isolate, Slow, Lossy; Restore, RestoreAll
//
// Every host has one TUN device, whose other end is a descriptor of the forwarding process: this program, started once
// more under another name (see init). It polls all descriptors, reads packets in batches, puts each into the queue of
// its ordered pair of hosts with a deadline, and writes it to the other device when that has come:
//
//	process -> TUN(from) -> read -> loss? -> rate -> half the round trip + jitter -> queue -> write -> TUN(to) -> process
//
// Queues are first in, first out: packets of one direction never overtake each other, whatever the jitter. A heap holds
// one deadline for each queue that is not empty. The one thread sleeps in ppoll(2) with a timeout in nanoseconds, a
// timer slack of 1 ns and real-time priority where that is allowed. Packets carry their virtio header, so TCP segments
// of up to 64 KiB cross in one piece and without a checksum; while some link loses packets they are cut to 1500 bytes,
// because a loss must hit what travels on a wire. Links and counters lie in memory shared by both processes: a fault is
// in force for the next packet.
//
// StartTrace and StopTrace tell which TCP segments crossed, in the order in which they did: a test can count what a
// message costs, and prove that something did not wait for an answer.
//
// The Observer is this machine itself as one more host. It reaches every other one without a delay: for control, and
// for clients.
//
// Nothing remains, however this process ends: namespaces and devices are held by descriptors alone, the
// forwarding process ends when the pipe from its parent is closed, and the kernel removes the rest. The observer's
// device has a name (trwan0, …), which also keeps two emulations at once on networks of their own in 198.18.0.0/15.
// Cgroups of budgets (NewBudget) have names too; those of dead processes are removed by the next one.
//
// Limits: IPv4 only. The emulation's own delay, about 0.1 ms per round trip on an idle machine, comes on top of what is
// asked; Stats tells how late packets were, TestLinks measures it. It works on the receivers' account:
// the kernel's receiving half runs in its write. A rate counts IP bytes, a 64 KiB segment as one packet.
package wan
