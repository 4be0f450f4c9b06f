package router

import (
	"bytes"
	"compress/zlib"
	"encoding/binary"
	"io"

	"github.com/klauspost/compress/zstd"

	"trireme/internal/mysql/mysqlwire"
)

// tap looks, packet by packet, at what a client says to a server whose bytes are passed on, for commands that are not
// the server's. It holds nothing back: it stops in front of such a command, or of the last byte without which the
// server cannot begin with it.
type tap struct {
	caps      uint32 // of the session
	loggedIn  bool   // commands have begun
	blind     bool   // TLS that does not end here: nothing can be seen
	packed    bool   // frames of the compressed protocol
	questions bool   // short COM_QUERYs are stopped at too

	head   [12]byte // of the packet at hand, n of its first bytes
	n      int
	left   int // bytes to come after its head
	length int // of its payload, bytes
	prev   struct {
		seq    byte
		length int
	}
	frame   []byte // the beginning of a compressed command that is being read; at most most() bytes
	reading bool
}

// How much of a compressed frame is kept until its beginning can be told, bytes: of zlib's any part tells something, of
// zstd's the first block, which is at most 128 KiB.
const (
	maxFrame     = 16 << 10
	maxFrameZstd = 129 << 10
)

func (t *tap) most() int {
	if t.caps&mysqlwire.CapZstd != 0 {
		return maxFrameZstd
	}
	return maxFrame
}

// maxQuestion is what a statement that is the router's own on the stream port has at most, bytes.
const maxQuestion = 256

// loggedInTap is for a client that has logged in through this router.
func loggedInTap(caps uint32) *tap {
	return &tap{caps: caps, loggedIn: true, packed: caps&(mysqlwire.CapCompress|mysqlwire.CapZstd) != 0}
}

// stop is what a tap has found.
type stop struct {
	command byte
	length  int  // of the payload, bytes
	begun   bool // its head, or more of it, has been passed on: the server waits for the rest
}

// feed takes the next bytes of the client. The first pass bytes are to pass on. If found is not nil, a command follows
// them that is not passed on: from there to its end it is the caller's, and the tap continues after it.
func (t *tap) feed(p []byte) (pass int, found *stop) {
	for pass < len(p) {
		if t.blind {
			return len(p), nil
		}
		if t.left > 0 {
			n := min(t.left, len(p)-pass)
			if t.reading {
				more := min(n, t.most()-len(t.frame))
				t.frame = append(t.frame, p[pass:pass+more]...)
				if more == t.left || len(t.frame) == t.most() {
					asks := asksForLog(inflated(t.frame))
					if t.reading, t.frame = false, nil; asks {
						t.left = 0
						return pass + more - 1, &stop{command: mysqlwire.ComBinlogDump, begun: true}
					}
				}
			}
			pass += n
			if t.left -= n; t.left == 0 {
				t.reading, t.frame = false, nil
			}
			continue
		}
		for t.n < t.need() && pass < len(p) {
			t.head[t.n] = p[pass]
			t.n++
			pass++
		}
		if t.n < t.need() {
			break
		}
		begun := t.n > pass
		if c, is := t.judge(); is && (!begun || c != comQuery) {
			back := t.n
			if begun {
				back = 1
			}
			found = &stop{command: c, length: t.length, begun: begun}
			t.n, t.left = 0, 0
			return pass - back, found
		}
		t.n = 0
	}
	return pass, nil
}

// need is how many bytes of a packet tell what it is.
func (t *tap) need() int {
	length, seq := mysqlwire.ParseHeader(t.head[:4])
	switch {
	case t.n < 4:
		return 4
	case !t.loggedIn && seq == 0: // the first command
		t.loggedIn, t.packed = true, t.caps&(mysqlwire.CapCompress|mysqlwire.CapZstd) != 0
	}
	switch {
	case t.packed && t.n >= 7 && t.unpacked() == 0 && length > mysqlwire.HeaderLen:
		return 12
	case t.packed:
		return 7
	case !t.loggedIn && t.caps == 0 && length >= 4:
		return 8
	}
	return min(4+length, 5)
}

// unpacked is the length of a compressed frame's content, bytes; 0: it is not compressed.
func (t *tap) unpacked() int { return int(t.head[4]) | int(t.head[5])<<8 | int(t.head[6])<<16 }

// judge takes a packet whose head is whole. is: it is a command to stop at.
func (t *tap) judge() (command byte, is bool) {
	length, seq := mysqlwire.ParseHeader(t.head[:4])
	begins := seq == 0 && t.prev.length != mysqlwire.MaxPayload && (t.prev.seq != 255 || t.prev.length == 0)
	t.prev.seq, t.prev.length = seq, length
	t.length, t.left = length, 4+length-t.n
	switch {
	case t.packed:
		t.left = 7 + length - t.n
		if begins && t.n == 12 {
			return t.head[11], t.head[10] == 0 && isDump(t.head[11])
		}
		t.reading = begins && t.unpacked() != 0
	case !t.loggedIn:
		if t.n == 8 {
			t.caps = binary.LittleEndian.Uint32(t.head[4:])
			t.blind = t.caps&mysqlwire.CapSSL != 0 && length == sslRequestLen
		}
	case begins && t.n == 5:
		c := t.head[4]
		return c, isDump(c) || t.questions && c == comQuery && length <= maxQuestion
	}
	return 0, false
}

// sslRequestLen tells a request for TLS from an answer to the greeting, bytes.
const sslRequestLen = 32

func isDump(command byte) bool {
	return command == mysqlwire.ComBinlogDump || command == mysqlwire.ComBinlogDumpGTID
}

// asksForLog reports whether the first packet of a compressed frame is such a command.
func asksForLog(head []byte) bool {
	return len(head) > mysqlwire.HeaderLen && head[3] == 0 && isDump(head[mysqlwire.HeaderLen])
}

// inflated is the beginning of what a frame holds, by whichever of the two methods; nil if that cannot be told.
func inflated(frame []byte) []byte {
	head := make([]byte, mysqlwire.HeaderLen+1)
	if z, err := zlib.NewReader(bytes.NewReader(frame)); err == nil {
		if _, err := io.ReadFull(z, head); err == nil {
			return head
		}
	}
	z, err := zstd.NewReader(bytes.NewReader(frame), zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
		zstd.WithDecoderMaxWindow(1<<20))
	if err != nil {
		return nil
	}
	defer z.Close()
	if _, err := io.ReadFull(z, head); err != nil {
		return nil
	}
	return head
}
