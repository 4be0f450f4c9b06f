package transport

import (
	"bytes"
	"fmt"

	"go.etcd.io/raft/v3/raftpb"
)

// EncodeFrame returns the frame that a link sends for m. It is for simulations, as all here. The error is that of a
// message that a link would drop.
func EncodeFrame(m *raftpb.Message) ([]byte, error) {
	e, err := prepare(m)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	e.appendTo(&b)
	return b.Bytes(), nil
}

// DecodeFrame reads a frame that node to has got from node from, as a link's reader does. The error is one upon which
// the connection ends.
func DecodeFrame(from, to uint64, frame []byte) (*raftpb.Message, error) {
	kind, body, _, err := cutFrame(bytes.Clone(frame))
	if err != nil {
		return nil, err
	}
	if kind != frameRaft {
		return nil, fmt.Errorf("%w: frame of kind %d", ErrProtocol, kind)
	}
	return decodeRaft(from, to, body)
}

// IsBulk reports whether a message takes the bulk stream: within one stream the order is kept.
func IsBulk(m *raftpb.Message) bool { return isBulk(m.GetType()) }
