package router

import (
	"bytes"
	"compress/zlib"
	"encoding/binary"
	"math/rand/v2"
	"testing"

	"github.com/klauspost/compress/zstd"

	"trireme/internal/mysql/mysqlwire"
)

func packet(seq byte, payload ...byte) []byte { return mysqlwire.AppendPacket(nil, seq, payload) }

// response is a client's answer to the greeting.
func response(caps uint32) []byte {
	p := binary.LittleEndian.AppendUint32(nil, caps|mysqlwire.CapProtocol41)
	p = append(p, make([]byte, 28)...)
	return packet(1, append(p, "app\x00\x00"...)...)
}

// tapped sends said through a tap in pieces, and gives what was passed on and what was stopped at.
func tapped(t *testing.T, tp *tap, said []byte, piece int) (passed []byte, found []stop) {
	t.Helper()
	for len(said) > 0 {
		p := said[:min(piece, len(said))]
		pass, f := tp.feed(p)
		if passed = append(passed, p[:pass]...); f == nil {
			if pass != len(p) {
				t.Fatalf("%d of %d bytes passed, and nothing found", pass, len(p))
			}
			said = said[pass:]
			continue
		}
		found = append(found, *f)
		return passed, found
	}
	return passed, nil
}

var dumpCommand = packet(0, append([]byte{mysqlwire.ComBinlogDumpGTID}, make([]byte, 40)...)...)

// TestTapStopsAtDump: however the client's bytes come, all in front of the command is passed on, and the command itself
// never is.
func TestTapStopsAtDump(t *testing.T) {
	before := bytes.Join([][]byte{response(0), packet(3, 'p', 'w', 0), packet(0, comPing),
		packet(0, append([]byte{comQuery}, "SELECT 1"...)...),
		packet(0, comStmtClose, mysqlwire.ComBinlogDump, 0, 0, 0), packet(0)}, nil)
	said := append(bytes.Clone(before), dumpCommand...)
	for piece := 1; piece <= len(said); piece++ {
		passed, found := tapped(t, &tap{}, said, piece)
		if len(found) != 1 || found[0].command != mysqlwire.ComBinlogDumpGTID || found[0].length != 41 {
			t.Fatalf("pieces of %d: %+v", piece, found)
		}
		if len(passed) < len(before) || len(passed) > len(before)+4 || found[0].begun != (len(passed) > len(before)) ||
			!bytes.Equal(passed, said[:len(passed)]) {
			t.Fatalf("pieces of %d: %d bytes passed of %d in front of the command, begun %v", piece, len(passed), len(before),
				found[0].begun)
		}
	}
	if _, found := tapped(t, loggedInTap(0), dumpCommand, 1000); len(found) != 1 || found[0].begun {
		t.Fatalf("after a login: %+v", found)
	}
}

// What looks like the command within something else is passed on.
func TestTapPassesOn(t *testing.T) {
	file := func(seq byte, n int) []byte { return packet(seq, bytes.Repeat([]byte{mysqlwire.ComBinlogDump}, n)...) }
	long := append([]byte{0xff, 0xff, 0xff, 0}, append([]byte{comQuery}, make([]byte, mysqlwire.MaxPayload-1)...)...)
	tls := response(mysqlwire.CapSSL)
	binary.LittleEndian.PutUint32(tls, 32|1<<24)
	for name, said := range map[string][]byte{
		"a file whose packets have come round": bytes.Join([][]byte{response(0), packet(0, comQuery, 'L'), file(254, 9),
			file(255, 9), file(0, 9), file(1, 9), file(2, 0)}, nil),
		"a long statement's second packet": bytes.Join([][]byte{response(0), long, file(0, 9), packet(0, comPing)},
			nil),
		"TLS that ends at the server": append(tls[:36], dumpCommand...),
		"an argument": append(response(0),
			packet(0, comQuery, 0, 0, 0, 0, mysqlwire.ComBinlogDump)...),
		"no such protocol, with short sentences": []byte("hello, hello, hello"),
	} {
		for _, piece := range []int{1, 7, 1 << 20} {
			if piece == 1 && len(said) > 1<<20 {
				continue
			}
			if passed, found := tapped(t, &tap{}, said, piece); found != nil || !bytes.Equal(passed, said) {
				t.Errorf("%s, pieces of %d: %+v, %d of %d bytes", name, piece, found, len(passed), len(said))
			}
		}
	}
	// A file that has come round and ends with number 255 is over: the next number 0 begins a command.
	said := bytes.Join([][]byte{response(0), packet(0, comQuery, 'L'), file(254, 9), file(255, 0), dumpCommand}, nil)
	if _, found := tapped(t, &tap{}, said, 1<<20); len(found) != 1 {
		t.Errorf("after a file: %+v", found)
	}
}

func TestTapQuestions(t *testing.T) {
	question := packet(0, append([]byte{comQuery}, "SELECT @@GLOBAL.GTID_PURGED"...)...)
	tp := loggedInTap(0)
	tp.questions = true
	pass, found := tp.feed(append(packet(0, comPing), question...))
	if found == nil || found.command != comQuery || pass != 5 || found.length != len(question)-4 {
		t.Fatalf("%d %+v", pass, found)
	}
	if pass, found = tp.feed(dumpCommand); pass != 0 || found == nil {
		t.Fatalf("after it: %d %+v", pass, found)
	}
	long := packet(0, append([]byte{comQuery}, make([]byte, maxQuestion)...)...)
	if pass, found := tp.feed(long); found != nil || pass != len(long) {
		t.Fatalf("a long one: %d %+v", pass, found)
	}
}

// frame is a frame of the compressed protocol; method 0 leaves it as it is.
func frame(t *testing.T, method uint32, seq byte, payload []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	size := len(payload)
	switch method {
	case mysqlwire.CapCompress:
		w := zlib.NewWriter(&b)
		_, _ = w.Write(payload)
		_ = w.Close()
	case mysqlwire.CapZstd:
		w, err := zstd.NewWriter(nil, zstd.WithSingleSegment(true)) // as ZSTD_compress does
		if err != nil {
			t.Fatal(err)
		}
		_, _ = b.Write(w.EncodeAll(payload, nil))
		_ = w.Close()
	default:
		size = 0
		_, _ = b.Write(payload)
	}
	return append([]byte{byte(b.Len()), byte(b.Len() >> 8), byte(b.Len() >> 16), seq, byte(size), byte(size >> 8),
		byte(size >> 16)}, b.Bytes()...)
}

// TestTapCompressed: of a compressed command the server never gets the last byte.
func TestTapCompressed(t *testing.T) {
	for _, caps := range []uint32{mysqlwire.CapCompress, mysqlwire.CapZstd} {
		for _, method := range []uint32{0, caps} {
			insert := packet(0, append([]byte{comQuery}, bytes.Repeat([]byte("INSERT "), 4000)...)...)
			before := bytes.Join([][]byte{response(caps), packet(3, 0), frame(t, method, 0, packet(0, comPing)),
				frame(t, method, 0, insert)}, nil)
			noise := make([]byte, 300<<10) // a long GTID set
			_, _ = rand.NewChaCha8([32]byte{}).Read(noise)
			for _, command := range [][]byte{dumpCommand, packet(0, append([]byte{mysqlwire.ComBinlogDumpGTID}, noise...)...)} {
				said := append(bytes.Clone(before), frame(t, method, 0, command)...)
				for _, piece := range []int{1, 2, 5, 8, 11, 100, len(said)} {
					passed, found := tapped(t, &tap{}, said, piece)
					if len(found) != 1 || len(passed) >= len(said) || !bytes.HasPrefix(passed, before) {
						t.Fatalf("method %#x, pieces of %d: %+v, %d of %d bytes, %d in front", method, piece, found, len(passed),
							len(said), len(before))
					}
				}
			}
		}
	}
}

// Whatever a client says, a tap ends, holds nothing back and keeps little.
func FuzzTap(f *testing.F) {
	f.Add(append(response(0), dumpCommand...), uint32(0))
	f.Add(append(response(mysqlwire.CapCompress), dumpCommand...), uint32(3))
	f.Fuzz(func(t *testing.T, said []byte, seed uint32) {
		tp, r := &tap{}, rand.New(rand.NewPCG(uint64(seed), 1))
		for len(said) > 0 {
			n := 1 + r.IntN(len(said))
			pass, found := tp.feed(said[:n])
			if pass < 0 || pass > n || found == nil && pass != n || len(tp.frame) > maxFrameZstd {
				t.Fatalf("%d of %d bytes, %+v", pass, n, found)
			}
			if found != nil {
				return
			}
			said = said[n:]
		}
	})
}
