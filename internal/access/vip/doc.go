// Package vip holds virtual IP addresses on this host as long as its node may: it asks first whether another host has
// one, binds it, tells the network where it is now, and takes it away again.
//
//	find the interface by its subnet -> probe (RFC 5227, RFC 4862) -> May? -> bind -> announce, several times -> May? -> renew, …
//
// An address is bound as a single one (/32, /128), and IPv6 addresses are never a source of the host's own connections.
// It has a lifetime of some seconds that is renewed once a second: if the daemon and its guard are both killed or
// stopped, the kernel itself removes the address. The guard, which outlives its daemon by a moment, removes it at once
// (Remove).
//
// Releasing an address resets the connections to it first, by the kernel's SOCK_DESTROY: a client that waits for an
// answer would otherwise wait forever, since nothing that could tell it leaves this host once the address is gone.
//
// The rights that this needs are CAP_NET_ADMIN (addresses, SOCK_DESTROY) and CAP_NET_RAW (ARP and neighbour discovery).
package vip
