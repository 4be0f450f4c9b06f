package binlog

import (
	"bytes"
	"errors"
	"testing"

	"github.com/klauspost/compress/zstd"

	"trireme/lab/heap"
)

// bomb is a payload of a few bytes that holds one transaction of size bytes.
func bomb(t testing.TB, size int) []byte {
	t.Helper()
	enc, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer enc.Close()
	events := AppendQuery(nil, Header{}, 1, "", "XA START 'x'")
	events = events[:len(events)-ChecksumLen]
	fixSize(events)
	row := AppendEvent(nil, Header{Type: TypeWriteRows}, make([]byte, size))
	row = row[:len(row)-ChecksumLen]
	fixSize(row)
	return enc.EncodeAll(append(events, row...), nil)
}

// fixSize makes the header say what an event without its checksum has.
func fixSize(ev []byte) {
	h := decodeHeader(ev)
	h.EventSize = uint32(len(ev))
	copy(ev, h.Append(nil))
}

// FuzzPayload looks into arbitrary payloads: whatever they unpack to, memory is bounded by one window of the
// compression.
func FuzzPayload(f *testing.F) {
	_, events := sample(f, "payload-1")
	for _, ev := range events {
		if p, err := ParsePayload(ev); err == nil {
			f.Add(byte(p.Compression), p.Payload)
		}
	}
	f.Add(byte(CompressionZSTD), bomb(f, 64<<20))
	// A frame that announces a window of 128 MiB, and then ends.
	f.Add(byte(CompressionZSTD), []byte{0x28, 0xB5, 0x2F, 0xFD, 0, 0x88, 1, 0, 0})
	f.Add(byte(CompressionNone), AppendQuery(nil, Header{}, 1, "", "BEGIN"))
	f.Fuzz(func(t *testing.T, compression byte, payload []byte) {
		heap.Within(t, 2*maxPayloadWindow, func() {
			var r payloadReader
			p := PayloadEvent{Compression: Compression(compression), Payload: payload}
			first, err := r.read(p)
			if err != nil && !errors.Is(err, ErrMalformed) {
				t.Fatalf("unclassified: %v", err)
			}
			if again, err2 := r.read(p); again != first || (err == nil) != (err2 == nil) {
				t.Fatalf("%+v, %v; read again %+v, %v", first, err, again, err2)
			}
		})
	})
}

// A bomb takes no more memory than a small payload.
func TestPayloadBomb(t *testing.T) {
	packed := bomb(t, 256<<20)
	if len(packed) > 64<<10 {
		t.Fatalf("%d bytes are no bomb", len(packed))
	}
	heap.Within(t, 32<<20, func() {
		var r payloadReader
		if _, err := r.read(PayloadEvent{Compression: CompressionZSTD, Payload: packed}); !errors.Is(err, ErrMalformed) {
			t.Error(err)
		}
	})
}

// FuzzHeader: a header written again is the same, and an event is cut off whole or not at all.
func FuzzHeader(f *testing.F) {
	_, events := sample(f, "tagged-2")
	f.Add(bytes.Join(events[:3], nil))
	f.Add(Header{Type: TypeGTID, EventSize: MaxEventSize}.Append(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		heap.Within(t, 0, func() {
			h, ev, rest, err := Cut(b)
			if err != nil {
				if !errors.Is(err, ErrShort) && !errors.Is(err, ErrMalformed) {
					t.Fatalf("unclassified: %v", err)
				}
				return
			}
			if !bytes.Equal(h.Append(nil), b[:HeaderLen]) || len(ev)+len(rest) != len(b) || len(ev) != int(h.EventSize) {
				t.Fatalf("%+v of %d bytes, %d left", h, len(b), len(rest))
			}
			if err := VerifyChecksum(ev); err != nil && !errors.Is(err, ErrChecksum) {
				t.Fatalf("unclassified: %v", err)
			}
			sound := bytes.Clone(ev)
			PutChecksum(sound)
			if err := VerifyChecksum(sound); err != nil {
				t.Fatal(err)
			}
		})
	})
}
