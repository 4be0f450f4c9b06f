package transport

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
)

// Kind is a kind of request between daemons: its number on the wire, a body of type Q and an answer of type A.
// docs/format/peer.md lists them. Both are JSON, but for None, strings and bytes, which are sent as they are, and
// numbers (uint8, uint64, []uint64), which are little-endian.
type Kind[Q, A any] struct {
	Number uint8
	// StrictBody and StrictAnswer: a key that this version does not know may change what is meant, so it is refused.
	StrictBody, StrictAnswer bool
}

// None is an empty body, and the answer of who only says that something is done.
type None struct{}

// Asker asks another member's daemon; a Transport does.
type Asker interface {
	Request(ctx context.Context, member uint64, kind uint8, body []byte) ([]byte, error)
}

// Ask puts a request to a member and waits for its answer. An error of the one who was asked is a RemoteError.
func (k Kind[Q, A]) Ask(ctx context.Context, peers Asker, to uint64, q Q) (a A, err error) {
	body, err := encode(q)
	if err != nil {
		return a, err
	}
	if body, err = peers.Request(ctx, to, k.Number, body); err != nil {
		return a, err
	}
	return a, decode(body, &a, k.StrictAnswer)
}

// By says who answers the requests of a kind. from is the member that asks.
func (k Kind[Q, A]) By(f func(ctx context.Context, from uint64, q Q) (A, error)) Answer {
	return Answer{k.Number, func(ctx context.Context, from uint64, body []byte) ([]byte, error) {
		var q Q
		if err := decode(body, &q, k.StrictBody); err != nil {
			return nil, err
		}
		a, err := f(ctx, from, q)
		if err != nil {
			return nil, err
		}
		return encode(a)
	}}
}

// After says after what the requests of a kind are answered.
func After[Q any](k Kind[Q, None], f func(ctx context.Context, from uint64, q Q) error) Answer {
	return k.By(func(ctx context.Context, from uint64, q Q) (None, error) { return None{}, f(ctx, from, q) })
}

// Answer is how a daemon answers the requests of one kind.
type Answer struct {
	Number uint8
	answer func(ctx context.Context, from uint64, body []byte) ([]byte, error)
}

// Answers are those of a daemon, one for each kind.
type Answers []Answer

// HandleRequest answers another member's daemon.
func (as Answers) HandleRequest(ctx context.Context, from uint64, kind uint8, body []byte) ([]byte, error) {
	for _, a := range as {
		if a.Number == kind {
			return a.answer(ctx, from, body)
		}
	}
	return nil, fmt.Errorf("unknown request %d: upgrade this node", kind)
}

func encode(v any) ([]byte, error) {
	switch v := v.(type) {
	case None:
		return nil, nil
	case string:
		return []byte(v), nil
	case []byte:
		return v, nil
	case uint8:
		return []byte{v}, nil
	case uint64:
		return binary.LittleEndian.AppendUint64(nil, v), nil
	case []uint64:
		return binary.Append(nil, binary.LittleEndian, v)
	}
	return json.Marshal(v)
}

func decode(b []byte, to any, strict bool) error {
	switch to := to.(type) {
	case *None:
		return nil // an older or newer daemon may say more
	case *string:
		*to = string(b)
		return nil
	case *[]byte:
		*to = b
		return nil
	case *uint8, *uint64:
		if n, err := binary.Decode(b, binary.LittleEndian, to); err != nil || n != len(b) {
			return fmt.Errorf("%w: a number of %d bytes", ErrProtocol, len(b))
		}
		return nil
	case *[]uint64:
		*to = make([]uint64, len(b)/8)
		if n, err := binary.Decode(b, binary.LittleEndian, *to); err != nil || n != len(b) {
			return fmt.Errorf("%w: numbers of %d bytes", ErrProtocol, len(b))
		}
		return nil
	}
	if !strict {
		return json.Unmarshal(b, to)
	}
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.DisallowUnknownFields()
	if err := dec.Decode(to); err != nil {
		return fmt.Errorf("an order that this version does not understand; upgrade this node: %w", err)
	}
	return nil
}
