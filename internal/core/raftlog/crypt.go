package raftlog

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"

	"trireme/internal/mysql/binlog"
)

// An encrypted segment: a header of its own, the ordinary head, sealed, and records whose data is sealed.
// docs/format/log.md describes it.
//
// The fields of a record's header stay in the clear (index, term, watermark, lengths), and the chain CRC is that of the
// sealed bytes. So torn and damaged records can be told apart without a key, by the same code and rules as for any
// segment.
//
// GCM loses everything when a key is used with a nonce twice. Each new segment has a random key. Its nonces count up
// from a number that is drawn when the log is opened. The count never goes back while the log is open, even after a
// cut, and each nonce is stored next to what it seals. A segment that is written to again after a crash, over what was
// cut, or over zeros that were never synced, continues with the numbers of another draw. With 96 bits, a segment of a
// million records that is opened a hundred times repeats a nonce with a probability below 2^-60.
const (
	// cryptMagic is that of mysqld's own encrypted binary logs, so mysqlbinlog reports that it cannot read them.
	cryptMagic   = "\xfdbin"
	cryptOurs    = "TRIK"
	cryptVersion = 1
	cryptUse     = "trireme raft log segment"

	offCryptVersion = 8
	offCryptIDLen   = 9
	offCryptHeadLen = 12
	offCryptID      = 16
	offCryptSalt    = offCryptID + maxKeyID
	offCryptNonce   = offCryptSalt + saltBytes
	offCryptKey     = offCryptNonce + nonceBytes
	offCryptCRC     = offCryptKey + keyBytes + tagBytes
	cryptHeadBytes  = offCryptCRC + 4

	saltBytes  = 32
	nonceBytes = 12
	tagBytes   = 16

	// sealInfo is what a sealed record has inline: nonce, length of the meta, length of the abort events.
	sealInfo = nonceBytes + 4 + 4
)

// sealing is how a segment is encrypted. The zero value: it is not.
type sealing struct {
	keyID string // of the master key
	aead  cipher.AEAD
}

// nonce is a counter that never goes back: see above.
type nonce [nonceBytes]byte

func newNonce() (n nonce) {
	_, _ = rand.Read(n[:]) // never fails: crypto/rand crashes the program instead
	return n
}

// next increments the counter.
func (n *nonce) next() []byte {
	for i := len(n) - 1; i >= 0; i-- {
		if n[i]++; n[i] != 0 {
			break
		}
	}
	return n[:]
}

func newGCM(key []byte) (cipher.AEAD, error) {
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCM(block)
}

// wrap is the cipher that seals the key of one segment, once: so its nonce is zero.
func (m *masterKey) wrap(salt []byte) (cipher.AEAD, error) {
	key, err := hkdf.Key(sha256.New, m.secret[:], salt, cryptUse, keyBytes)
	if err != nil {
		return nil, err
	}
	return newGCM(key)
}

var zeroNonce [nonceBytes]byte

// sealHead makes the beginning of an encrypted segment from that of an ordinary one, and a new key.
func sealHead(m *masterKey, n *nonce, head []byte) ([]byte, sealing, error) {
	var key [keyBytes]byte
	defer clear(key[:])
	_, _ = rand.Read(key[:])
	b := make([]byte, cryptHeadBytes, cryptHeadBytes+len(head)+tagBytes)
	copy(b, cryptMagic+cryptOurs)
	b[offCryptVersion], b[offCryptIDLen] = cryptVersion, byte(len(m.id))
	binary.LittleEndian.PutUint32(b[offCryptHeadLen:], uint32(len(head)+tagBytes))
	copy(b[offCryptID:], m.id)
	_, _ = rand.Read(b[offCryptSalt:offCryptNonce])
	copy(b[offCryptNonce:], n.next())
	wrap, err := m.wrap(b[offCryptSalt:offCryptNonce])
	if err != nil {
		return nil, sealing{}, err
	}
	wrap.Seal(b[:offCryptKey], zeroNonce[:], key[:], b[:offCryptKey])
	binary.LittleEndian.PutUint32(b[offCryptCRC:], crc32.Checksum(b[:offCryptCRC], castagnoli))
	aead, err := newGCM(key[:])
	if err != nil {
		return nil, sealing{}, err
	}
	return aead.Seal(b, b[offCryptNonce:offCryptKey], head, b), sealing{m.id, aead}, nil
}

// openHead reads the beginning of an encrypted segment and returns the number of bytes it takes. The errors are
// errShortRecord, errBadHead, ErrNewer and ErrKey.
func openHead(b []byte, keys *Keys) (h segmentHead, seal sealing, used int, err error) {
	if len(b) < cryptHeadBytes {
		return h, seal, 0, errShortRecord
	}
	le := binary.LittleEndian
	if string(b[4:offCryptVersion]) != cryptOurs || le.Uint32(b[offCryptCRC:]) != crc32.Checksum(b[:offCryptCRC],
		castagnoli) {
		return h, seal, 0, fmt.Errorf("%w: the header of an encrypted segment does not verify", errBadHead)
	}
	if v := b[offCryptVersion]; v != cryptVersion {
		return h, seal, 0, fmt.Errorf("%w: encrypted segment format %d, this program knows %d", ErrNewer, v, cryptVersion)
	}
	id := string(b[offCryptID : offCryptID+min(int(b[offCryptIDLen]), maxKeyID)])
	sealed := le.Uint32(b[offCryptHeadLen:])
	if !validKeyID(id) || sealed < tagBytes || sealed > maxHeadBytes {
		return h, seal, 0, fmt.Errorf("%w: %d bytes sealed with the key %q", errBadHead, sealed, id)
	}
	m := keys.find(id)
	if m == nil {
		return h, seal, 0,
			fmt.Errorf(
				"%w: it was written with the key %q, there are %v; give that one too (raft.log_key_file, raft.log_key_command)",
				ErrKey, id, keys)
	}
	wrap, err := m.wrap(b[offCryptSalt:offCryptNonce])
	if err != nil {
		return h, seal, 0, err
	}
	key, err := wrap.Open(nil, zeroNonce[:], b[offCryptKey:offCryptCRC], b[:offCryptKey])
	if err != nil {
		return h, seal, 0, fmt.Errorf("%w: the key %q is not the one of that name that it was written with", ErrKey, id)
	}
	defer clear(key)
	seal.keyID = id
	if seal.aead, err = newGCM(key); err != nil {
		return h, seal, 0, err
	}
	if used = cryptHeadBytes + int(sealed); used > len(b) {
		return h, seal, 0, errShortRecord
	}
	plain, err := seal.aead.Open(nil, b[offCryptNonce:offCryptKey], b[cryptHeadBytes:used], b[:cryptHeadBytes])
	if err != nil {
		return h, seal, 0, fmt.Errorf("%w: the sealed head does not verify", errBadHead)
	}
	h, end, err := parseHead(plain)
	if err == nil && end != len(plain) || err == errShortRecord {
		err = fmt.Errorf("%w: it does not end within %d bytes", errBadHead, len(plain))
	}
	return h, seal, used, err
}

// isSealed reports whether a file that begins with b is an encrypted segment.
func isSealed(b []byte) bool { return bytes.HasPrefix(b, []byte(cryptMagic)) }

// seal turns rec into a sealed one. room, of rec's size or more, receives the sealed bytes; data is rec's if that lies
// in one piece. Sealed bytes cannot be moved to another place of the log: the header is part of what is verified.
func (rec *record) seal(aead cipher.AEAD, n *nonce, data, room []byte) {
	if len(rec.prefix) > 0 {
		data = append(append(append(make([]byte, 0, rec.dataSize()), rec.inline...), rec.prefix...), rec.events...)
	}
	info := make([]byte, 0, sealInfo)
	info = append(info, n.next()...)
	info = binary.LittleEndian.AppendUint32(info, uint32(len(rec.inline)))
	info = binary.LittleEndian.AppendUint32(info, uint32(len(rec.prefix)))
	rec.sealed, rec.inline, rec.prefix, rec.events = true, info, nil, room[:len(data)+tagBytes]
	head := appendRecordBody(make([]byte, 0, recordFixed+sealInfo), rec)
	aead.Seal(rec.events[:0], info[:nonceBytes], data, head)
}

func (rec *record) dataSize() int { return len(rec.inline) + len(rec.prefix) + len(rec.events) }

// open makes a record, as decodeRecord returns it, readable in place: the bytes that it was decoded from are not a
// record any more. A segment is sealed completely or not at all. The error is errBadRecord.
func (rec *record) open(aead cipher.AEAD) error {
	if rec.sealed != (aead != nil) {
		return fmt.Errorf("%w: sealed: %t, in a segment that is: %t", errBadRecord, rec.sealed, aead != nil)
	}
	if aead == nil {
		return nil
	}
	if len(rec.inline) != sealInfo || len(rec.prefix) != 0 {
		return fmt.Errorf("%w: no sealed record", errBadRecord)
	}
	info := rec.inline
	plain, err := aead.Open(rec.events[:0], info[:nonceBytes], rec.events, rec.body)
	if err != nil {
		return fmt.Errorf("%w: index %d: %w", errBadRecord, rec.index, errSeal)
	}
	inline, prefix := uint64(binary.LittleEndian.Uint32(info[nonceBytes:])),
		uint64(binary.LittleEndian.Uint32(info[nonceBytes+4:]))
	if inline+prefix > uint64(len(plain)) {
		return fmt.Errorf("%w: %d bytes of meta in %d", errBadRecord, inline+prefix, len(plain))
	}
	rec.inline, rec.prefix, rec.events = plain[:inline:inline], plain[inline:inline+prefix], plain[inline+prefix:]
	rec.whole = plain
	return nil
}

var errSeal = errors.New("its seal does not verify, though its CRC does: it was changed on purpose")

// sealedRoom is how much room a sealed record takes in the segment beyond its data.
const sealedRoom = binlog.HeaderLen + recordFixed + sealInfo + 4 + binlog.ChecksumLen + tagBytes
