package transport

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
)

// Every frame is: body length u32 | kind u8 | body.
const frameHeader = 5

type frameKind uint8

const (
	frameHello    frameKind = 1
	frameWelcome  frameKind = 2
	frameRaft     frameKind = 3
	frameStatus   frameKind = 4
	frameRequest  frameKind = 5
	frameResponse frameKind = 6
	framePing     frameKind = 7
	framePong     frameKind = 8
	framePacked   frameKind = 11

	// Append messages for a learner by way of a node near it, from versions that know upstreams. They are dropped.
	frameRelay   frameKind = 9
	frameForward frameKind = 10
)

const (
	maxHelloFrame   = 4 << 10
	maxControlFrame = MaxRequestBytes + 64
	maxBulkFrame    = 1<<31 - 1
	// growStep is how much memory a frame gets before its bytes have come: a length alone cannot make us allocate more. A
	// message of raft's usual greatest size (1 MiB of entries) fits at once.
	growStep = 4 << 20
)

// MaxRequestBytes bounds the body of a request or an answer, and a status broadcast.
const MaxRequestBytes = 4 << 20

// frameReader reads frames. Where a read does not wait, an error is that of the moment: next goes on where it was.
type frameReader struct {
	r *bufio.Reader
	// the frame whose body is coming
	kind frameKind
	size int
	body []byte // nil: none is
	have int
}

func newFrameReader(c io.Reader) *frameReader { return &frameReader{r: bufio.NewReaderSize(c, 64<<10)} }

// next returns one frame; the body is the caller's. An empty body is nil.
func (f *frameReader) next(limit int) (frameKind, []byte, error) {
	if f.body == nil {
		head, err := f.r.Peek(frameHeader)
		if err != nil {
			if len(head) > 0 && err == io.EOF {
				err = io.ErrUnexpectedEOF
			}
			return 0, nil, err
		}
		size, kind := binary.LittleEndian.Uint32(head), frameKind(head[4])
		if uint64(size) > uint64(limit) {
			return 0, nil, fmt.Errorf("%w: frame of %d bytes, %d are allowed", ErrProtocol, size, limit)
		}
		_, _ = f.r.Discard(frameHeader) // peeked above
		if size == 0 {
			return kind, nil, nil
		}
		f.kind, f.size, f.have = kind, int(size), 0
		f.body = make([]byte, min(f.size, growStep))
	}
	for {
		n, err := io.ReadFull(f.r, f.body[f.have:])
		if f.have += n; f.have == f.size {
			body := f.body
			f.body = nil
			return f.kind, body, nil
		}
		if err != nil {
			if err == io.EOF {
				err = io.ErrUnexpectedEOF
			}
			return 0, nil, err
		}
		grown := make([]byte, min(f.size, 4*len(f.body)))
		copy(grown, f.body)
		f.body = grown
	}
}

// frameWriter writes frames into a buffer that is sent by Flush.
type frameWriter struct{ *bufio.Writer }

func newFrameWriter(c io.Writer) frameWriter { return frameWriter{bufio.NewWriterSize(c, 64<<10)} }

func (w frameWriter) head(kind frameKind, size int) error {
	_, err := w.Write(appendFrameHeader(w.AvailableBuffer(), kind, size))
	return err
}

func (w frameWriter) frame(kind frameKind, parts ...[]byte) error {
	size := 0
	for _, p := range parts {
		size += len(p)
	}
	if err := w.head(kind, size); err != nil {
		return err
	}
	for _, p := range parts {
		if _, err := w.Write(p); err != nil {
			return err
		}
	}
	return nil
}

func appendFrameHeader(b []byte, kind frameKind, size int) []byte {
	return append(binary.LittleEndian.AppendUint32(b, uint32(size)), byte(kind))
}
