package transport

import (
	"encoding/binary"
	"fmt"
)

// Protocol versions that this program speaks.
const (
	protocolVersion    = 3 // 2: relays, which are gone; 3: packed frames
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
//	cluster: length u8, bytes | address: length u16, bytes | generation
type hello struct {
	version, minVersion uint16
	stream              stream
	from, to            uint64
	instance            uint64 // see newInstance: tells a restarted peer from one whose connection broke
	cluster             string
	address             string // where the dialer listens
	generation          Generation
}

// Generation says which cluster of one name and one CA a node belongs to: force-quorum makes a new one out of the
// survivors of a lost majority. Nodes of different generations tell each other theirs and exchange nothing else. The
// first one has no claim, and a peer that says nothing is of it.
//
//	number u64 | id u64 | claim: length u16, bytes
type Generation struct {
	Number uint64 // 1 for the first
	ID     uint64 // random; 0 for the first. Two of one number are strangers to each other
	Claim  string // what its nodes say of it to others, at most maxClaim bytes; opaque here
}

// maxClaim bounds Generation.Claim.
const maxClaim = 2 << 10

func (g Generation) same(o Generation) bool { return g.Number == o.Number && g.ID == o.ID }

func (g Generation) String() string {
	if g.ID == 0 {
		return fmt.Sprint(g.Number)
	}
	return fmt.Sprintf("%d/%016x", g.Number, g.ID)
}

func (g Generation) append(b []byte) []byte {
	le := binary.LittleEndian
	b = le.AppendUint64(b, g.Number)
	b = le.AppendUint64(b, g.ID)
	b = le.AppendUint16(b, uint16(len(g.Claim)))
	return append(b, g.Claim...)
}

// decodeGeneration reads what follows the fields of hello and welcome; nothing means the first generation.
func decodeGeneration(b []byte) (Generation, error) {
	le := binary.LittleEndian
	if len(b) == 0 {
		return Generation{Number: 1}, nil
	}
	if len(b) < 18 || len(b) < 18+int(le.Uint16(b[16:])) || le.Uint64(b) == 0 {
		return Generation{}, fmt.Errorf("%w: generation of %d bytes", ErrProtocol, len(b))
	}
	return Generation{Number: le.Uint64(b), ID: le.Uint64(b[8:]), Claim: string(b[18 : 18+int(le.Uint16(b[16:]))])}, nil
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
	b = append(b, h.address...)
	return h.generation.append(b)
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
	var err error
	if h.generation, err = decodeGeneration(b[2+n:]); err != nil {
		return nil, err
	}
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
	refusedGeneration
	refusedRevoked
	refusedTwin // an older process has the same identity, and runs
)

// welcome: verdict u8 | version u16 | id u64 | instance u64 | text: length u16, bytes | generation
type welcome struct {
	verdict    verdict
	version    uint16
	id         uint64
	instance   uint64
	text       string
	generation Generation
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
	b = append(b, text...)
	return w.generation.append(b)
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
	var err error
	w.generation, err = decodeGeneration(b[welcomeFixed+n:])
	return w, err
}

// refusals are what the verdicts mean to the dialer.
var refusals = map[verdict]error{refusedCluster: ErrForeignCluster, refusedID: ErrWrongID, refusedVersion: ErrVersion,
	refusedGeneration: ErrGeneration, refusedRevoked: ErrRevoked, refusedTwin: ErrTwin}

// err turns a refusal into an error that says which side objects to what.
func (w *welcome) err() error {
	switch err := refusals[w.verdict]; {
	case w.verdict == accepted:
		return nil
	case err != nil:
		return fmt.Errorf("%w: %s", err, w.text)
	}
	return fmt.Errorf("%w: the peer refused: %s", ErrProtocol, w.text)
}
