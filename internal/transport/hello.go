package transport

import (
	"encoding/binary"
	"fmt"
)

// Protocol versions that this program speaks.
const (
	protocolVersion    = 2 // 2: relays
	protocolMinVersion = 1
)

const helloMagic = "TRIREME\x00"

type stream uint8

const (
	controlStream stream = 1
	bulkStream    stream = 2
)

func (s stream) String() string {
	if s == bulkStream {
		return "bulk"
	}
	return "control"
}

// hello is the dialer's first frame:
//
//	magic 8 | version u16 | lowest version u16 | stream u8 | from u64 | to u64 | instance u64 |
//	cluster: length u8, bytes | address: length u16, bytes
type hello struct {
	version, minVersion uint16
	stream              stream
	from, to            uint64
	instance            uint64 // random per process: tells a restarted peer from one whose connection broke
	cluster             string
	address             string // where the dialer listens
}

const helloFixed = 8 + 2 + 2 + 1 + 8 + 8 + 8

func (h *hello) encode() []byte {
	le := binary.LittleEndian
	b := append([]byte(nil), helloMagic...)
	b = le.AppendUint16(b, h.version)
	b = le.AppendUint16(b, h.minVersion)
	b = append(b, byte(h.stream))
	b = le.AppendUint64(b, h.from)
	b = le.AppendUint64(b, h.to)
	b = le.AppendUint64(b, h.instance)
	b = append(b, byte(len(h.cluster)))
	b = append(b, h.cluster...)
	b = le.AppendUint16(b, uint16(len(h.address)))
	return append(b, h.address...)
}

func decodeHello(b []byte) (*hello, error) {
	le := binary.LittleEndian
	if len(b) < helloFixed+1 || string(b[:8]) != helloMagic {
		return nil, fmt.Errorf("%w: not a hello", ErrProtocol)
	}
	h := &hello{
		version: le.Uint16(b[8:]), minVersion: le.Uint16(b[10:]), stream: stream(b[12]),
		from: le.Uint64(b[13:]), to: le.Uint64(b[21:]), instance: le.Uint64(b[29:]),
	}
	b = b[helloFixed:]
	n := int(b[0])
	if len(b) < 1+n+2 {
		return nil, fmt.Errorf("%w: hello is cut short", ErrProtocol)
	}
	h.cluster, b = string(b[1:1+n]), b[1+n:]
	if n = int(le.Uint16(b)); len(b) < 2+n { // a later version may append fields
		return nil, fmt.Errorf("%w: hello is cut short", ErrProtocol)
	}
	h.address = string(b[2 : 2+n])
	if h.stream != controlStream && h.stream != bulkStream {
		return nil, fmt.Errorf("%w: hello for stream %d", ErrProtocol, h.stream)
	}
	return h, nil
}

// verdict is the listener's answer to hello.
type verdict uint8

const (
	accepted verdict = iota
	refusedCluster
	refusedID
	refusedVersion
	refusedOther
)

// welcome: verdict u8 | version u16 | id u64 | instance u64 | text: length u16, bytes
type welcome struct {
	verdict  verdict
	version  uint16
	id       uint64
	instance uint64
	text     string
}

const welcomeFixed = 1 + 2 + 8 + 8 + 2

func (w *welcome) encode() []byte {
	le := binary.LittleEndian
	b := []byte{byte(w.verdict)}
	b = le.AppendUint16(b, w.version)
	b = le.AppendUint64(b, w.id)
	b = le.AppendUint64(b, w.instance)
	text := w.text[:min(len(w.text), 512)]
	b = le.AppendUint16(b, uint16(len(text)))
	return append(b, text...)
}

func decodeWelcome(b []byte) (*welcome, error) {
	le := binary.LittleEndian
	if len(b) < welcomeFixed {
		return nil, fmt.Errorf("%w: welcome of %d bytes", ErrProtocol, len(b))
	}
	w := &welcome{verdict: verdict(b[0]), version: le.Uint16(b[1:]), id: le.Uint64(b[3:]), instance: le.Uint64(b[11:])}
	n := int(le.Uint16(b[19:]))
	if len(b) < welcomeFixed+n {
		return nil, fmt.Errorf("%w: welcome is cut short", ErrProtocol)
	}
	w.text = string(b[welcomeFixed : welcomeFixed+n])
	return w, nil
}

// err turns a refusal into an error that says which side objects to what.
func (w *welcome) err() error {
	switch w.verdict {
	case accepted:
		return nil
	case refusedCluster:
		return fmt.Errorf("%w: %s", ErrForeignCluster, w.text)
	case refusedID:
		return fmt.Errorf("%w: %s", ErrWrongID, w.text)
	case refusedVersion:
		return fmt.Errorf("%w: %s", ErrVersion, w.text)
	}
	return fmt.Errorf("%w: the peer refused: %s", ErrProtocol, w.text)
}
