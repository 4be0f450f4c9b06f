package mysqld

import (
	"errors"
	"strings"
)

// What can be wrong with a server, for errors.Is. Each arrives wrapped with the details and with what to do.
var (
	// Of the program.
	ErrNotFound = errors.New("no mysqld found")
	ErrMariaDB  = errors.New("this mysqld is MariaDB, which Trireme cannot run")
	ErrTooOld   = errors.New("this mysqld is too old")
	ErrNotMySQL = errors.New("this is not a mysqld")

	// Of the settings and the directory.
	ErrConfig         = errors.New("bad mysqld configuration")
	ErrSetting        = errors.New("mysqld setting belongs to Trireme")
	ErrLocked         = errors.New("another daemon owns this directory")
	ErrNotInitialized = errors.New("no data directory here")
	ErrInitialized    = errors.New("a data directory is here already")
	ErrForeignData    = errors.New("this data directory was not made by Trireme")
	ErrNewerData      = errors.New("this data directory was written by a newer MySQL")
	ErrInUse          = errors.New("another mysqld uses this data directory")
	ErrPortInUse      = errors.New("port in use")
	ErrNoSpace        = errors.New("not enough disk space")

	// Of the process.
	ErrRunning   = errors.New("mysqld is running already")
	ErrExited    = errors.New("mysqld exited")
	ErrNotReaped = errors.New("mysqld does not die")

	// Of a running server.
	ErrTimeout        = errors.New("mysqld did not answer in time")
	ErrAccess         = errors.New("mysqld refuses Trireme's account")
	ErrWrongSettings  = errors.New("mysqld runs with wrong settings")
	ErrNonTransaction = errors.New("tables without transactions")
	ErrNoChannel      = errors.New("no replication channel is configured")
)

// hints turn a line of mysqld's error log into advice. The first that matches wins.
var hints = []struct{ sign, advice string }{
	{"Address already in use", "another program listens on this port: stop it, or change mysql.port"},
	{"Invalid MySQL server downgrade",
		"this data directory was written by a newer MySQL: install that version or a later one"},
	{"Cannot boot server version",
		"this data directory does not fit this MySQL version: use the version that wrote it, or the next series above it"},
	{"Different lower_case_table_names",
		"lower_case_table_names cannot change after the data directory was made: remove it from mysql.options"},
	{"unknown variable", "mysqld does not know this setting: correct it in mysql.options"},
	{"unknown option", "mysqld does not know this setting: correct it in mysql.options"},
	{"Unable to lock ./ibdata1", "another mysqld uses this data directory: stop it"},
	{"No space left on device", "the disk is full: free some space and start again"},
	{"OS errno 28", "the disk is full: free some space and start again"},
	{"Permission denied", "mysqld's user may not read or write its folders: give them to that user (mysql.os_user)"},
	{"error while loading shared libraries",
		"the mysqld program misses a library: install it, or let scripts/mysql.sh fetch MySQL"},
	{"Cannot allocate memory", "not enough memory: make innodb_buffer_pool_size smaller in mysql.options"},
	{"buf0dblwr", "InnoDB's pages and their copies are torn, as by a power loss: re-seed this node with `trireme reinit`"},
	{"corrupt", "the data directory may be damaged: see mysqld.err, then re-seed this node with `trireme reinit`"},
}

// adviceFor says what to do about the given lines of an error log, or nothing.
func adviceFor(lines []string) string {
	for _, h := range hints {
		for _, l := range lines {
			if strings.Contains(l, h.sign) {
				return h.advice
			}
		}
	}
	return ""
}
