// Package mysqlwire speaks the MySQL client/server protocol: packet framing, connection phase, authentication and the
// small part of the command phase that a replica, a source and a one-row query need.
//
// It holds no SQL and knows nothing of replication; dump builds both on top of it. Administrative SQL goes through
// database/sql elsewhere: this package exists because a replica and a source need the raw connection.
//
//	packet   3 bytes payload length (little endian) | 1 byte sequence | payload
//	         a payload of 0xFFFFFF bytes or more is cut into packets of 0xFFFFFF, the last one shorter (perhaps empty)
//	server   greeting v10 ->            <- handshake response 41 (before it, optionally, SSLRequest and TLS)
//	         -> AuthSwitchRequest FE .. <- plugin data
//	         -> AuthMoreData 01 03      caching_sha2_password: the fast path succeeded, OK follows
//	         -> AuthMoreData 01 04      full authentication: password in clear over TLS or a unix socket, else RSA-OAEP
//	         -> OK 00 / ERR FF
//
// Client is the client's side, Session the server's. Neither announces CLIENT_DEPRECATE_EOF, so that result sets end
// in an EOF packet in both roles. Both are for one goroutine at a time.
//
// Source: https://dev.mysql.com/doc/dev/mysql-server/latest/PAGE_PROTOCOL.html and sql/auth/sha2_password.cc.
package mysqlwire
