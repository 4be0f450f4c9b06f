package transport

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/klauspost/compress/zstd"
	"golang.org/x/sys/unix"
)

// Compression says when the frames of a bulk stream are compressed.
type Compression uint8

const (
	CompressNever Compression = iota
	// CompressAuto: only what is sent while a slow network, not the peer, holds up what was sent before.
	CompressAuto
	CompressAlways
)

// packVersion is the first version of the protocol that knows packed frames.
const packVersion = 3

const (
	packBytes = 1 << 20 // a packed frame is sent once it holds so much
	maxPacked = 4 << 20 // of frames in a packed one; a larger frame travels as it is
	// packFrom: less is not worth a compressor's and a decompressor's time, however slow the link.
	packFrom = 512
	// backlogFrom is how much the kernel must still have to send for a link to count as the limit.
	backlogFrom = 128 << 10
	// packBelow is the bytes per second from which a link is fast enough: the compressor makes some 150 MiB of a second
	// of one CPU, and a burst between machines side by side waits for the kernel, too.
	packBelow = 32 << 20
	// lookFor is how many µs a link must have been busy to tell how fast it is.
	lookFor = 10_000
	// packFor is how long a link that was the limit is taken for one: what is compressed soon leaves no backlog, and to
	// send as it is again at once would only make the next one.
	packFor = 10 * time.Second
)

// packer writes frames to a bulk stream, compressed while that pays. Its buffers and the compressor are there from the
// first use on.
type packer struct {
	c      *outConn
	mode   Compression
	packed *Packed
	sample func() (linkSample, error)
	last   linkSample
	fresh  bool      // last was taken at the write before this one
	most   int       // no more than so many bytes are unsent
	until  time.Time // the link is taken for the limit

	zip *zstd.Encoder
	buf bytes.Buffer // whole frames
	out []byte
}

func newPacker(c *outConn, mode Compression, packed *Packed) *packer {
	p := &packer{c: c, mode: mode, packed: packed, sample: func() (linkSample, error) { return sample(c.s.own.FD()) }}
	if c.version < packVersion {
		p.mode = CompressNever
	}
	return p
}

// Packed counts what was given to compression, and what it came to. Safe for concurrent use.
type Packed struct{ before, after atomic.Int64 }

func (p *Packed) add(before, after int) {
	p.before.Add(int64(before))
	p.after.Add(int64(after))
}

// Before is in bytes.
func (p *Packed) Before() int64 { return p.before.Load() }

// After is in bytes.
func (p *Packed) After() int64 { return p.after.Load() }

// wants decides whether to compress the given number of bytes that are written next.
func (p *packer) wants(bytes int) bool {
	worth := bytes >= packFrom
	switch p.mode {
	case CompressNever:
		return false
	case CompressAlways:
		return worth
	}
	p.look(bytes)
	return worth && !p.until.IsZero() && time.Now().Before(p.until)
}

// look asks the kernel whether the link is the limit, unless what was written cannot have piled up: each small commit
// is spared the system call.
func (p *packer) look(bytes int) {
	if p.most < backlogFrom {
		p.most, p.fresh = p.most+bytes, false
		return
	}
	now, err := p.sample()
	if err != nil {
		return // an old kernel
	}
	if p.fresh && now.isLimit(p.last) {
		p.until = time.Now().Add(packFor)
	}
	if !p.fresh || now.unsent < backlogFrom || now.busy-p.last.busy >= lookFor {
		p.last = now
	}
	p.most, p.fresh = int(now.unsent)+bytes, true
}

// linkSample is what the kernel knows of a connection.
type linkSample struct {
	unsent           uint32 // bytes taken from us and never sent yet
	busy, peerLimits uint64 // µs with something to send, and of these with the peer's window closed
	acked            uint64 // bytes that the peer's kernel has
}

// isLimit: much waits, not for the peer's reading, and the link has been slow since the sample before.
func (s linkSample) isLimit(before linkSample) bool {
	busy := s.busy - before.busy
	return s.unsent >= backlogFrom && busy >= lookFor && 2*(s.peerLimits-before.peerLimits) < busy &&
		1e6*(s.acked-before.acked) < packBelow*busy
}

func sample(fd int) (linkSample, error) {
	info, err := unix.GetsockoptTCPInfo(fd, unix.IPPROTO_TCP, unix.TCP_INFO)
	if err != nil {
		return linkSample{}, err
	}
	return linkSample{unsent: info.Notsent_bytes, busy: info.Busy_time, peerLimits: info.Rwnd_limited,
		acked: info.Bytes_acked}, nil
}

// take compresses a message with those before it, until end at the latest; false: it is too large for that, and all
// before it is written.
func (p *packer) take(e *encodedMessage) (bool, error) {
	if p.zip == nil {
		zip, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1),
			zstd.WithWindowSize(packBytes),
			zstd.WithLowerEncoderMem(true), zstd.WithEncoderCRC(false)) // TLS keeps the bytes as they are
		if err != nil {
			return false, err
		}
		p.zip = zip
	}
	if p.buf.Len()+frameHeader+e.size > maxPacked {
		if err := p.end(); err != nil {
			return false, err
		}
	}
	if frameHeader+e.size > maxPacked {
		return false, nil
	}
	e.appendTo(&p.buf)
	if p.buf.Len() < packBytes {
		return true, nil
	}
	return true, p.end()
}

// end writes what has been taken: as it is, if compression does not make it smaller by a tenth.
func (p *packer) end() error {
	raw := p.buf.Bytes()
	defer p.buf.Reset()
	if len(raw) == 0 {
		return nil
	}
	p.out = p.zip.EncodeAll(raw, p.out[:0])
	p.c.s.room -= len(raw) // it takes more of the turn than to write them
	p.packed.add(len(raw), len(p.out))
	if len(p.out) > len(raw)/10*9 {
		_, err := p.c.w.Write(raw)
		return err
	}
	return p.c.w.frame(framePacked, binary.LittleEndian.AppendUint32(nil, uint32(len(raw))), p.out)
}

// unpacker reads packed frames. The zero value is ready.
type unpacker struct{ zip *zstd.Decoder }

// unpack returns the frames in the body of a packed frame.
func (u *unpacker) unpack(body []byte) ([]byte, error) {
	if len(body) < 4 {
		return nil, fmt.Errorf("%w: packed frame of %d bytes", ErrProtocol, len(body))
	}
	size := binary.LittleEndian.Uint32(body)
	if size > maxPacked {
		return nil, fmt.Errorf("%w: packed frame of %d bytes, %d are allowed", ErrProtocol, size, maxPacked)
	}
	if u.zip == nil {
		zip, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(maxPacked),
			zstd.WithDecoderLowmem(true))
		if err != nil {
			return nil, err
		}
		u.zip = zip
	}
	raw, err := u.zip.DecodeAll(body[4:], make([]byte, 0, size))
	if err != nil || len(raw) != int(size) {
		return nil, fmt.Errorf("%w: packed frame: %d bytes of %d, %v", ErrProtocol, len(raw), size, err)
	}
	return raw, nil
}

// cutFrame takes the first frame off what unpack returned.
func cutFrame(b []byte) (kind frameKind, body, rest []byte, err error) {
	if len(b) < frameHeader {
		return 0, nil, nil, fmt.Errorf("%w: packed frame ends within a frame", ErrProtocol)
	}
	size := uint64(binary.LittleEndian.Uint32(b))
	if size > uint64(len(b)-frameHeader) {
		return 0, nil, nil, fmt.Errorf("%w: packed frame ends within a frame", ErrProtocol)
	}
	end := frameHeader + int(size)
	return frameKind(b[4]), b[frameHeader:end:end], b[end:], nil
}
