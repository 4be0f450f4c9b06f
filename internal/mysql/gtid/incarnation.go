package gtid

import (
	"encoding/binary"
	"fmt"
)

const (
	// ClusterMask keeps the bits of a cluster's hash that an incarnation UUID carries. Compare with
	// `hash & ClusterMask` what ParseIncarnation returns.
	ClusterMask = 1<<60 - 1
	// MaxNode is the highest raft id that fits an incarnation UUID.
	MaxNode = 1<<12 - 1
	// MaxIncarnation is the highest incarnation number that fits an incarnation UUID.
	MaxIncarnation = 1<<48 - 1
)

// IncarnationUUID makes the server_uuid of one life of a mysqld: a version-8 UUID (RFC 9562 §5.8) of the form
//
//	cccccccc-cccc-8ccc-8nnn-iiiiiiiiiiii
//
// with c = the low 60 bits of cluster, n = node and i = incarnation. It panics when node > MaxNode or
// incarnation > MaxIncarnation: either would make two lives share a UUID, and with it GTIDs (S5).
func IncarnationUUID(cluster uint64, node uint16, incarnation uint64) UUID {
	if node > MaxNode || incarnation > MaxIncarnation {
		panic(fmt.Sprintf("gtid: incarnation UUID out of range: node %d, incarnation %d", node, incarnation))
	}
	cluster &= ClusterMask
	var u UUID
	binary.BigEndian.PutUint64(u[:8], cluster>>12<<16|0x8<<12|cluster&0xfff)
	binary.BigEndian.PutUint64(u[8:], 0x8<<60|uint64(node)<<48|incarnation)
	return u
}

// ParseIncarnation takes apart what IncarnationUUID made; ok is false for any other UUID version or variant.
// cluster is the hash & ClusterMask. A foreign version-8 UUID also parses: compare cluster.
func ParseIncarnation(u UUID) (cluster uint64, node uint16, incarnation uint64, ok bool) {
	hi, lo := binary.BigEndian.Uint64(u[:8]), binary.BigEndian.Uint64(u[8:])
	if hi>>12&0xf != 0x8 || lo>>60 != 0x8 {
		return 0, 0, 0, false
	}
	return hi>>16<<12 | hi&0xfff, uint16(lo >> 48 & MaxNode), lo & MaxIncarnation, true
}
