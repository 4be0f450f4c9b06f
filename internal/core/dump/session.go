package dump

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"net"
	"time"

	"trireme/internal/core/raftlog"
	"trireme/internal/mysql/binlog"
	"trireme/internal/mysql/gtid"
	"trireme/internal/mysql/mysqlwire"
)

// maxTimeoutSeconds is the largest that mysqld takes. As wait_timeout it keeps an idle session open, as
// net_write_timeout a dump whose reader holds it back because the cluster has no quorum.
const maxTimeoutSeconds = 31536000

// heartbeatPeriod is that of an idle stream.
const heartbeatPeriod = time.Second

// openSession logs in and says everything up to the dump command, as a semi-sync replica. The replica's user variables
// have had two names: the server looks for either (sql/rpl_binlog_sender.cc), so both are set.
func (s *Source) openSession(ctx context.Context) (*mysqlwire.Client, error) {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.LoginLimit)
	defer cancel()
	nc, err := s.cfg.Dial(ctx)
	if err != nil {
		return nil, fmt.Errorf("dial mysqld: %w", err)
	}
	client, err := mysqlwire.Login(ctx, nc, mysqlwire.ClientConfig{
		User: s.cfg.User, Password: s.cfg.Password,
		Attributes: []mysqlwire.Attribute{{Name: "program_name", Value: "trireme"}},
	})
	if err != nil {
		return nil, err
	}
	replica := s.replicaUUID()
	for _, statement := range []string{
		fmt.Sprintf("SET SESSION wait_timeout=%d, SESSION net_write_timeout=%d", maxTimeoutSeconds, maxTimeoutSeconds),
		"SET @rpl_semi_sync_replica=1, @rpl_semi_sync_slave=1",
		"SET @source_binlog_checksum='CRC32', @master_binlog_checksum='CRC32'",
		fmt.Sprintf("SET @source_heartbeat_period=%d, @master_heartbeat_period=%d", heartbeatPeriod.Nanoseconds(),
			heartbeatPeriod.Nanoseconds()),
		fmt.Sprintf("SET @replica_uuid='%s', @slave_uuid='%s'", replica, replica),
	} {
		if _, err := client.Exec(ctx, statement); err != nil {
			_ = client.Close()
			return nil, fmt.Errorf("prepare dump session: %w", err)
		}
	}
	return client, nil
}

// replicaUUID is what the daemon calls itself towards mysqld, so that a new dump ends a dead one of ours: mysqld's own
// UUID with the first byte inverted, which no server of this cluster has.
func (s *Source) replicaUUID() gtid.UUID {
	u := s.cfg.ServerUUID
	u[0] ^= 0xFF
	return u
}

// startDump asks for the binary log from pos on, and hands over the raw connection and the bytes already read from it.
// What the server answers, an ERR packet too, comes in the stream.
func startDump(ctx context.Context, client *mysqlwire.Client, cfg *SourceConfig, pos raftlog.Pos) (net.Conn, []byte,
	error) {
	if err := client.Register(ctx, cfg.ReplicaServerID); err != nil {
		return nil, nil, err
	}
	command, argument := dumpCommand(cfg, pos)
	if err := client.WriteCommand(command, argument); err != nil {
		return nil, nil, fmt.Errorf("start dump from %v: %w", pos, err)
	}
	return client.Detach()
}

// dumpCommand encodes COM_BINLOG_DUMP: position u32, flags u16, server id u32, file name. Its position ends at 4 GiB;
// beyond, COM_BINLOG_DUMP_GTID with a file name and an empty set does the same with a position of 64 bits: the server
// looks for a GTID set only when it was given no file name (rpl_binlog_sender.cc, check_start_file).
func dumpCommand(cfg *SourceConfig, pos raftlog.Pos) (byte, []byte) {
	if pos.Off > math.MaxUint32 {
		return wideDumpCommand(cfg, pos)
	}
	b := binary.LittleEndian.AppendUint32(nil, uint32(pos.Off))
	b = append(b, 0, 0)
	b = binary.LittleEndian.AppendUint32(b, cfg.ReplicaServerID)
	return mysqlwire.ComBinlogDump, appendFileName(b, logName, pos.File)
}

func wideDumpCommand(cfg *SourceConfig, pos raftlog.Pos) (byte, []byte) {
	name := appendFileName(nil, logName, pos.File)
	b := []byte{0, 0}
	b = binary.LittleEndian.AppendUint32(b, cfg.ReplicaServerID)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(name)))
	b = append(b, name...)
	b = binary.LittleEndian.AppendUint64(b, pos.Off)
	set := gtid.Set{}.AppendBinary(nil)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(set)))
	return mysqlwire.ComBinlogDumpGTID, append(b, set...)
}

// ackPacket encodes a semi-sync ACK: sequence 0, EF, position u64, file name.
func ackPacket(dst []byte, pos raftlog.Pos) []byte {
	dst = append(dst, 0, 0, 0, 0, semiSyncMagic)
	dst = binary.LittleEndian.AppendUint64(dst, pos.Off)
	dst = appendFileName(dst, logName, pos.File)
	mysqlwire.PutHeader(dst, len(dst)-mysqlwire.HeaderLen, 0)
	return dst
}

const semiSyncMagic = 0xEF

// normalFDE makes of a FORMAT_DESCRIPTION event of this incarnation the one that represents it everywhere: created 0,
// so that a receiver keeps its temporary tables and open transaction, no in-use flag, a log_pos that is not 0.
func normalFDE(event []byte) ([]byte, error) {
	d, err := binlog.ParseFormatDescription(event)
	if err != nil {
		return nil, err
	}
	if d.Checksum != binlog.ChecksumCRC32 {
		return nil, fmt.Errorf("%w: mysqld writes events without CRC32: set binlog_checksum=CRC32", ErrInvariant)
	}
	fde, err := binlog.AppendWithCreatedZero(nil, event)
	if err != nil {
		return nil, err
	}
	binlog.SetLogPos(fde, uint32(len(binlog.Magic)+len(fde)))
	return fde, nil
}
