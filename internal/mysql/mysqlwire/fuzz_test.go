package mysqlwire

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"reflect"
	"testing"
	"time"

	"trireme/lab/heap"
)

// script is a connection whose other side says b and is then gone; what is written to it is kept.
type script struct {
	net.Conn
	b   []byte
	out bytes.Buffer
}

func (s *script) Read(p []byte) (int, error) {
	if len(s.b) == 0 {
		return 0, io.EOF
	}
	n := copy(p, s.b)
	s.b = s.b[n:]
	return n, nil
}

func (s *script) Write(p []byte) (int, error)    { return s.out.Write(p) }
func (*script) Close() error                     { return nil }
func (*script) SetDeadline(time.Time) error      { return nil }
func (*script) SetReadDeadline(time.Time) error  { return nil }
func (*script) SetWriteDeadline(time.Time) error { return nil }
func (*script) RemoteAddr() net.Addr             { return &net.UnixAddr{Name: "s", Net: "unix"} }

// framed makes packets of payloads, numbered from seq.
func framed(seq byte, payloads ...[]byte) []byte {
	s := &script{}
	c := NewConn(s, 0)
	c.seq = seq
	for _, p := range payloads {
		if err := c.WritePacket(p); err != nil {
			panic(err)
		}
	}
	return s.out.Bytes()
}

// checkSession: what ends a session is one of the errors of this package, the end of the connection, or what the server
// said.
func checkSession(t *testing.T, err error) {
	t.Helper()
	var se *ServerError
	for _, known := range []error{nil, io.EOF, io.ErrUnexpectedEOF, ErrMalformed, ErrSequence, ErrTooLarge, ErrAuthPlugin,
		ErrNoRow} {
		if errors.Is(err, known) {
			return
		}
	}
	if !errors.As(err, &se) {
		t.Fatalf("unclassified: %v", err)
	}
}

// grown is what reading n bytes may take: the buffers of a connection, and a payload that grows as they arrive.
func grown(n int) int { return 2*ioBufferBytes + 4*growStep + 16*n }

// FuzzPackets reads arbitrary bytes as packets: what was read, written again, is what came.
func FuzzPackets(f *testing.F) {
	f.Add(framed(0, []byte("one"), nil, []byte("three")), uint32(100))
	f.Add([]byte{0xFF, 0xFF, 0xFF, 0, 'x'}, uint32(1<<30))
	f.Add([]byte{0xFF, 0xFF, 0xFF, 0, 'x'}, uint32(10))
	f.Add([]byte{0, 0, 0, 1}, uint32(10))
	f.Fuzz(func(t *testing.T, b []byte, limit uint32) {
		limit = limit%DefaultMaxPacket + 1
		var again bytes.Buffer
		heap.Within(t, grown(len(b)), func() {
			c := NewConn(&script{b: b}, int(limit))
			w := NewConn(&script{}, 0)
			for {
				p, err := c.ReadPacket()
				if err != nil {
					checkSession(t, err)
					break
				}
				if len(p) > int(limit) {
					t.Fatalf("%d bytes, the limit is %d", len(p), limit)
				}
				if err := w.WritePacket(p); err != nil {
					t.Fatal(err)
				}
			}
			again = w.nc.(*script).out
		})
		if !bytes.HasPrefix(b, again.Bytes()) {
			t.Fatalf("read %x, wrote %x", b, again.Bytes())
		}
	})
}

// FuzzLogin is a server that says anything to a client that logs in and asks.
func FuzzLogin(f *testing.F) {
	greeting := AppendGreeting(nil, Greeting{Version: "9.7.4", Nonce: newNonce(), Plugin: PluginCachingSHA2,
		Capabilities: capProtocol41 | capSecureConnection | capPluginAuth})
	ok := AppendOK(nil, OK{})
	hello := framed(0, greeting)
	f.Add(append(bytes.Clone(hello), framed(2, []byte{markMore, cachingFastOK}, ok)...))
	f.Add(append(bytes.Clone(hello), framed(2, AppendAuthSwitch(nil, AuthSwitch{PluginNative, newNonce()}))...))
	f.Add(append(bytes.Clone(hello), framed(2, []byte{markMore, cachingFull})...))
	row := append(framed(1, []byte{1}, appendColumn(nil, Column{Name: "c"}), AppendEOF(nil, 2),
		AppendTextRow(nil, []Value{{Text: "v"}}), AppendEOF(nil, 2)), framed(1, ok)...)
	f.Add(append(append(bytes.Clone(hello), framed(2, ok)...), row...))
	f.Add(append(append(bytes.Clone(hello), framed(2, ok)...), framed(1, []byte{0xFC, 0, 16})...))
	f.Add(framed(0, AppendERR(nil, &ServerError{Code: 1040, Message: "Too many connections"})))
	f.Fuzz(func(t *testing.T, b []byte) {
		heap.Within(t, grown(len(b))+64*maxColumns, func() {
			c, err := Login(context.Background(), &script{b: b}, ClientConfig{User: "u", Password: "secret"})
			if err != nil {
				checkSession(t, err)
				return
			}
			_, err = c.QueryRow(context.Background(), "SELECT 1")
			checkSession(t, err)
			_, err = c.Exec(context.Background(), "SET a = 1")
			checkSession(t, err)
		})
	})
}

// FuzzAccept is a client that says anything to a server with an account: it is not let in.
func FuzzAccept(f *testing.F) {
	resp := Response{Capabilities: capProtocol41 | capPluginAuth | capSecureConnection,
		User: "u", Auth: bytes.Repeat([]byte{7}, 32), Plugin: PluginCachingSHA2}
	f.Add(framed(1, AppendResponse(nil, resp)))
	resp.Plugin = PluginNative
	f.Add(framed(1, AppendResponse(nil, resp)))
	f.Add(append(framed(1, AppendResponse(nil, resp)), framed(3, bytes.Repeat([]byte{7}, 32))...))
	f.Add(framed(1, AppendSSLRequest(nil, Response{Capabilities: capProtocol41 | capSSL})))
	f.Add([]byte{0xFF, 0xFF, 0xFF, 1})
	f.Fuzz(func(t *testing.T, b []byte) {
		heap.Within(t, grown(len(b)), func() {
			_, err := Accept(context.Background(), &script{b: b}, ServerConfig{User: "u", Password: "secret", Version: "9.7.4"})
			if err == nil {
				t.Fatal("let in without the password")
			}
			checkSession(t, err)
		})
	})
}

// FuzzCommands is a client that is logged in, since its account has no password, and sends anything for commands.
func FuzzCommands(f *testing.F) {
	resp := Response{Capabilities: capProtocol41 | capPluginAuth | capSecureConnection,
		User: "u", Plugin: PluginCachingSHA2}
	login := framed(1, AppendResponse(nil, resp))
	f.Add(framed(0, []byte{ComQuery, 'S'}))
	f.Add(framed(0, []byte{}))
	f.Fuzz(func(t *testing.T, b []byte) {
		heap.Within(t, grown(len(b)), func() {
			s, err := Accept(context.Background(), &script{b: append(bytes.Clone(login), b...)},
				ServerConfig{User: "u", Version: "9.7.4"})
			if err != nil {
				t.Fatal(err)
			}
			for err == nil {
				_, _, err = s.ReadCommand()
			}
			checkSession(t, err)
		})
	})
}

// FuzzRoundTrips: what is decoded, encoded again, is decoded as the same.
func FuzzRoundTrips(f *testing.F) {
	f.Add(AppendResponse(nil, Response{Capabilities: capProtocol41 | capSecureConnection | capPluginAuth | capConnectAttrs,
		User: "u", Auth: []byte{1},
		Plugin: PluginNative, Attributes: []Attribute{{"k", "v"}}}))
	f.Add(AppendAuthSwitch(nil, AuthSwitch{Plugin: PluginNative, Nonce: newNonce()}))
	f.Add(AppendERR(nil, &ServerError{Code: 1236, State: "HY000", Message: "gone"}))
	f.Add(AppendTextRow(nil, []Value{{Text: "a"}, {Null: true}}))
	f.Fuzz(func(t *testing.T, p []byte) {
		same := func(what string, again, first any, err error) {
			t.Helper()
			if err != nil || !reflect.DeepEqual(again, first) {
				t.Fatalf("%s: %+v became %+v: %v", what, first, again, err)
			}
		}
		heap.Within(t, 32*len(p)+100*maxColumns, func() {
			// The encoder writes the form of CLIENT_SECURE_CONNECTION, and names a plugin or attributes when it has any.
			if r, tls, err := ParseResponse(p); err == nil && !tls && len(r.Auth) <= 255 {
				r.Capabilities = r.Capabilities&^capLenencAuthData | capSecureConnection
				again, _, err := ParseResponse(AppendResponse(nil, r))
				same("response", again, r, err)
			}
			if s, err := ParseAuthSwitch(p); err == nil {
				again, err := ParseAuthSwitch(AppendAuthSwitch(nil, s))
				same("authentication switch", again, s, err)
			}
			if e, err := ParseERR(p); err == nil {
				again, err := ParseERR(AppendERR(nil, e))
				same("error", again, e, err)
			}
			for n := range 4 {
				if row, err := ParseRow(p, n); err == nil {
					again, err := ParseRow(AppendTextRow(nil, row), n)
					same("row", again, row, err)
				}
			}
		})
	})
}
