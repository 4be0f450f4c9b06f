package mysqlwire

import (
	"errors"
	"math"
	"reflect"
	"testing"
)

func TestLenenc(t *testing.T) {
	for _, v := range []uint64{0, 1, 250, 251, 0xFFFF, 0x10000, 0xFFFFFF, 0x1000000, math.MaxUint64} {
		c := cursor{b: appendLenenc(nil, v)}
		if got, isNull := c.lenenc(); got != v || isNull || c.bad || len(c.b) != 0 {
			t.Fatalf("%d: got %d null=%v bad=%v rest=%d", v, got, isNull, c.bad, len(c.b))
		}
	}
}

func TestERRWithoutState(t *testing.T) {
	e, err := ParseERR([]byte("\xff\x10\x04Too many connections"))
	if err != nil || e.Code != CodeTooManyConns || e.Message != "Too many connections" || e.State != "HY000" {
		t.Fatal(e, err)
	}
}

func TestResponseRoundTrip(t *testing.T) {
	want := Response{
		Capabilities: capProtocol41 | capSecureConnection | capPluginAuth | capConnectAttrs | capConnectWithDB,
		MaxPacket:    1 << 24, Collation: 255, User: "u", Auth: []byte("12345"), Database: "d", Plugin: PluginNative,
		Attributes: []Attribute{{"a", "b"}, {"c", ""}},
	}
	got, tls, err := ParseResponse(AppendResponse(nil, want))
	if err != nil || tls || !reflect.DeepEqual(got, want) {
		t.Fatalf("got %+v %v %v", got, tls, err)
	}
}

func checkMalformed(t *testing.T, err error) {
	t.Helper()
	var se *ServerError
	if err != nil && !errors.Is(err, ErrMalformed) && !errors.As(err, &se) {
		t.Fatalf("error %v wraps neither ErrMalformed nor ServerError", err)
	}
}

func FuzzParseGreeting(f *testing.F) {
	f.Add(AppendGreeting(nil, Greeting{Version: "9.7.4", Nonce: newNonce(), Plugin: PluginCachingSHA2,
		Capabilities: capProtocol41 | capSecureConnection | capPluginAuth}))
	f.Add([]byte("\xff\x10\x04Too many connections"))
	f.Fuzz(func(t *testing.T, p []byte) {
		g, err := ParseGreeting(p)
		checkMalformed(t, err)
		if err == nil && g.Capabilities&capPluginAuth != 0 {
			again, err := ParseGreeting(AppendGreeting(nil, g))
			if err != nil || !reflect.DeepEqual(again, g) {
				t.Fatalf("%+v became %+v: %v", g, again, err)
			}
		}
	})
}

func FuzzParseResponse(f *testing.F) {
	f.Add(AppendResponse(nil, Response{Capabilities: capProtocol41 | capPluginAuth | capConnectAttrs,
		User: "u", Auth: []byte{1},
		Attributes: []Attribute{{"k", "v"}}}))
	f.Add(AppendSSLRequest(nil, Response{Capabilities: capProtocol41 | capSSL}))
	f.Fuzz(func(t *testing.T, p []byte) {
		_, _, err := ParseResponse(p)
		checkMalformed(t, err)
	})
}

func FuzzParseAuthSwitch(f *testing.F) {
	f.Add(AppendAuthSwitch(nil, AuthSwitch{Plugin: PluginNative, Nonce: newNonce()}))
	f.Add([]byte{0xFE})
	f.Fuzz(func(t *testing.T, p []byte) {
		_, err := ParseAuthSwitch(p)
		checkMalformed(t, err)
	})
}

func FuzzParseOK(f *testing.F) {
	f.Add(AppendOK(nil, OK{AffectedRows: 1 << 40, LastInsertID: 3, Status: 2}))
	f.Fuzz(func(t *testing.T, p []byte) {
		ok, err := ParseOK(p)
		checkMalformed(t, err)
		if err == nil {
			if again, err := ParseOK(AppendOK(nil, ok)); err != nil || again != ok {
				t.Fatalf("%+v became %+v: %v", ok, again, err)
			}
		}
	})
}

func FuzzParseERR(f *testing.F) {
	f.Add(AppendERR(nil, &ServerError{Code: 1236, State: "HY000", Message: "gone"}))
	f.Fuzz(func(t *testing.T, p []byte) {
		_, err := ParseERR(p)
		checkMalformed(t, err)
	})
}

func FuzzParseRow(f *testing.F) {
	f.Add(AppendTextRow(nil, []Value{{Text: "a"}, {Null: true}}), 2)
	f.Fuzz(func(t *testing.T, p []byte, n int) {
		row, err := ParseRow(p, n)
		checkMalformed(t, err)
		if err == nil && len(row) != n {
			t.Fatalf("%d columns, want %d", len(row), n)
		}
		_, err = ParseColumnCount(p)
		checkMalformed(t, err)
	})
}
