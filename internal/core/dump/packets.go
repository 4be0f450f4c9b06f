package dump

import (
	"encoding/binary"
	"fmt"
	"io"

	"trireme/internal/mysql/mysqlwire"
)

// controlPacket is the error for a packet that carries no event: mysqld's own (a *mysqlwire.ServerError), its polite
// end of the stream, or garbage.
func controlPacket(payload []byte) error {
	switch {
	case mysqlwire.IsERR(payload):
		e, err := mysqlwire.ParseERR(payload)
		if err != nil {
			return err
		}
		if e.Code == mysqlwire.CodeSourceFatalDump {
			return fmt.Errorf("mysqld refuses the dump: %w", e)
		}
		return lost(fmt.Errorf("mysqld ended the dump: %w", e))
	case mysqlwire.IsEOF(payload):
		return lost(fmt.Errorf("mysqld ended the dump: %w", io.EOF))
	}
	return fmt.Errorf("dump stream: packet of %d bytes: %w", len(payload), mysqlwire.ErrMalformed)
}

// framingError tells a stream without the semi-sync prefix from a broken one.
func framingError(payload []byte) error {
	if len(payload) >= statusLen+13 && int(binary.LittleEndian.Uint32(payload[statusLen+9:])) == len(payload)-statusLen {
		return ErrNotSemiSync
	}
	return fmt.Errorf("dump stream: event and packet of %d bytes disagree: %w", len(payload), mysqlwire.ErrMalformed)
}
