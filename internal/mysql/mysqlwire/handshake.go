package mysqlwire

import (
	"encoding/binary"
	"fmt"
)

// Capability flags used here; the rest are neither offered nor asked for.
const (
	capLongPassword     = 1 << 0
	capConnectWithDB    = 1 << 3
	capProtocol41       = 1 << 9
	capSSL              = 1 << 11
	capTransactions     = 1 << 13
	capSecureConnection = 1 << 15
	capPluginAuth       = 1 << 19
	capConnectAttrs     = 1 << 20
	capLenencAuthData   = 1 << 21

	protocolVersion  = 10
	collationUTF8MB4 = 255
	statusAutocommit = 0x0002

	// sslRequestLen tells an SSLRequest from a full response: it is the response's fixed head alone.
	sslRequestLen = 32
)

// Greeting is the server's first packet (HandshakeV10).
type Greeting struct {
	Version      string
	ConnectionID uint32
	Nonce        []byte // 20 bytes
	Capabilities uint32
	Collation    byte
	Status       uint16
	Plugin       string
}

// ParseGreeting decodes a HandshakeV10. An ERR packet in its place (too many connections) yields its *ServerError.
func ParseGreeting(p []byte) (Greeting, error) {
	if IsERR(p) {
		return Greeting{}, responseError(p)
	}
	c := cursor{b: p}
	if v := c.u8(); v != protocolVersion {
		return Greeting{}, fmt.Errorf("protocol version %d, expected 10: %w", v, ErrMalformed)
	}
	g := Greeting{Version: string(c.nul()), ConnectionID: c.u32()}
	nonce := append([]byte(nil), c.take(8)...)
	c.take(1)
	g.Capabilities = uint32(c.u16())
	g.Collation, g.Status = c.u8(), c.u16()
	g.Capabilities |= uint32(c.u16()) << 16
	dataLen := int(c.u8())
	c.take(10)
	// The second part is max(13, dataLen-8) bytes of which the last is a zero.
	second := c.take(max(13, dataLen-8))
	if c.bad {
		return Greeting{}, malformed("greeting")
	}
	nonce = append(nonce, second[:len(second)-1]...)
	if len(nonce) != nonceLen {
		return Greeting{}, malformed("greeting nonce")
	}
	g.Nonce = nonce
	if g.Capabilities&capPluginAuth != 0 {
		g.Plugin = string(c.nul())
		if c.bad {
			return Greeting{}, malformed("greeting plugin")
		}
	}
	if const41 := uint32(capProtocol41 | capSecureConnection); g.Capabilities&const41 != const41 {
		return Greeting{}, malformed("server speaks no 4.1 protocol")
	}
	return g, nil
}

// AppendGreeting encodes a HandshakeV10. g.Nonce must have 20 bytes.
func AppendGreeting(b []byte, g Greeting) []byte {
	b = append(b, protocolVersion)
	b = append(append(b, g.Version...), 0)
	b = binary.LittleEndian.AppendUint32(b, g.ConnectionID)
	b = append(append(b, g.Nonce[:8]...), 0)
	b = binary.LittleEndian.AppendUint16(b, uint16(g.Capabilities))
	b = append(b, g.Collation)
	b = binary.LittleEndian.AppendUint16(b, g.Status)
	b = binary.LittleEndian.AppendUint16(b, uint16(g.Capabilities>>16))
	b = append(b, nonceLen+1)
	b = append(b, make([]byte, 10)...)
	b = append(append(b, g.Nonce[8:]...), 0)
	return append(append(b, g.Plugin...), 0)
}

// Response is the client's answer to the greeting (HandshakeResponse41).
type Response struct {
	Capabilities uint32
	MaxPacket    uint32 // bytes
	Collation    byte
	User         string
	Auth         []byte // at most 255 bytes
	Database     string // sent when Capabilities has CLIENT_CONNECT_WITH_DB
	Plugin       string
	Attributes   []Attribute
}

// Attribute is one connection attribute, seen in performance_schema.session_connect_attrs.
type Attribute struct{ Name, Value string }

// ParseResponse decodes a HandshakeResponse41. sslRequest is true for its first 32 bytes alone: the client wants TLS
// and sends the whole response after it.
func ParseResponse(p []byte) (r Response, sslRequest bool, err error) {
	c := cursor{b: p}
	r.Capabilities, r.MaxPacket, r.Collation = c.u32(), c.u32(), c.u8()
	c.take(23)
	if c.bad || r.Capabilities&capProtocol41 == 0 {
		return Response{}, false, malformed("handshake response")
	}
	if len(p) == sslRequestLen && r.Capabilities&capSSL != 0 {
		return r, true, nil
	}
	r.User = string(c.nul())
	r.Auth = c.authData(r.Capabilities)
	if r.Capabilities&capConnectWithDB != 0 {
		r.Database = string(c.nul())
	}
	if r.Capabilities&capPluginAuth != 0 && len(c.b) > 0 {
		r.Plugin = string(c.nul())
	}
	if r.Capabilities&capConnectAttrs != 0 && len(c.b) > 0 {
		r.Attributes = c.attributes()
	}
	if c.bad {
		return Response{}, false, malformed("handshake response")
	}
	return r, false, nil
}

func (c *cursor) authData(capabilities uint32) []byte {
	var data []byte
	switch {
	case capabilities&capLenencAuthData != 0:
		data, _ = c.lenencBytes()
	case capabilities&capSecureConnection != 0:
		data = c.take(int(c.u8()))
	default:
		data = c.nul()
	}
	return append([]byte(nil), data...)
}

func (c *cursor) attributes() []Attribute {
	block, isNull := c.lenencBytes()
	inner := cursor{b: block, bad: c.bad || isNull}
	var attrs []Attribute
	for len(inner.b) > 0 && !inner.bad {
		name, null1 := inner.lenencBytes()
		value, null2 := inner.lenencBytes()
		if null1 || null2 {
			inner.bad = true
		}
		attrs = append(attrs, Attribute{Name: string(name), Value: string(value)})
	}
	c.bad = c.bad || inner.bad
	return attrs
}

// AppendSSLRequest encodes the fixed head of r, which asks for TLS.
func AppendSSLRequest(b []byte, r Response) []byte {
	b = binary.LittleEndian.AppendUint32(b, r.Capabilities)
	b = binary.LittleEndian.AppendUint32(b, r.MaxPacket)
	b = append(b, r.Collation)
	return append(b, make([]byte, 23)...)
}

// AppendResponse encodes a HandshakeResponse41. r.Auth must be at most 255 bytes.
func AppendResponse(b []byte, r Response) []byte {
	b = AppendSSLRequest(b, r)
	b = append(append(b, r.User...), 0)
	b = append(append(b, byte(len(r.Auth))), r.Auth...)
	if r.Capabilities&capConnectWithDB != 0 {
		b = append(append(b, r.Database...), 0)
	}
	if r.Capabilities&capPluginAuth != 0 {
		b = append(append(b, r.Plugin...), 0)
	}
	if r.Capabilities&capConnectAttrs != 0 {
		var block []byte
		for _, a := range r.Attributes {
			block = appendLenencString(appendLenencString(block, a.Name), a.Value)
		}
		b = append(appendLenenc(b, uint64(len(block))), block...)
	}
	return b
}

// AuthSwitch is an AuthSwitchRequest: the server wants another plugin, with a nonce of its own.
type AuthSwitch struct {
	Plugin string
	Nonce  []byte
}

// ParseAuthSwitch decodes an AuthSwitchRequest.
func ParseAuthSwitch(p []byte) (AuthSwitch, error) {
	c := cursor{b: p}
	if c.u8() != markEOF || len(p) == 1 {
		return AuthSwitch{}, malformed("authentication switch request")
	}
	s := AuthSwitch{Plugin: string(c.nul())}
	if c.bad {
		return AuthSwitch{}, malformed("authentication switch request")
	}
	nonce := c.b
	if n := len(nonce); n > 0 && nonce[n-1] == 0 {
		nonce = nonce[:n-1]
	}
	s.Nonce = append([]byte(nil), nonce...)
	return s, nil
}

// AppendAuthSwitch encodes an AuthSwitchRequest.
func AppendAuthSwitch(b []byte, s AuthSwitch) []byte {
	b = append(append(append(b, markEOF), s.Plugin...), 0)
	return append(append(b, s.Nonce...), 0)
}
