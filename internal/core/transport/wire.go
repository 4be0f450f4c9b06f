package transport

import (
	"bufio"
	"bytes"
	"fmt"

	"go.etcd.io/raft/v3/raftpb"
)

// Wire turns raft messages into the frames that a link sends, and back as a link's reader does, without a connection.
// It is for simulations; not safe for concurrent use.
type Wire struct {
	out bytes.Buffer
	w   frameWriter
	in  bytes.Reader
	r   frameReader
}

// NewWire makes a Wire.
func NewWire() *Wire {
	w := &Wire{}
	w.w = frameWriter{bufio.NewWriterSize(&w.out, 4<<10)}
	w.r = frameReader{r: bufio.NewReaderSize(&w.in, 4<<10)}
	return w
}

// Encode returns the frame of m. The error is that of a message that a link would drop.
func (w *Wire) Encode(m *raftpb.Message) ([]byte, error) {
	e, err := prepare(m)
	if err != nil {
		return nil, err
	}
	w.out.Reset()
	if err := w.w.message(frameRaft, &e); err != nil {
		return nil, err
	}
	if err := w.w.Flush(); err != nil {
		return nil, err
	}
	return bytes.Clone(w.out.Bytes()), nil
}

// Decode reads a frame that node to has got from node from. The error is one upon which the connection ends.
func (w *Wire) Decode(from, to uint64, frame []byte) (*raftpb.Message, error) {
	w.in.Reset(frame)
	w.r.r.Reset(&w.in)
	w.r.body = nil
	kind, body, err := w.r.next(maxBulkFrame)
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
