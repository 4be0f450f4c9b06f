package dump

import (
	"net"

	"github.com/vishvananda/netlink"
)

// ownerOf is the user of the process at the other end of a connection within this host. known is false where the system
// does not tell: the other end is closed already, or the kernel cannot be asked.
func ownerOf(nc net.Conn) (uid int, known bool) {
	s, err := netlink.SocketGet(nc.RemoteAddr(), nc.LocalAddr())
	if err != nil || s.INode == 0 { // a closed one has no inode, and is said to be root's
		return 0, false
	}
	return int(s.UID), true
}
