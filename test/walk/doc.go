// Package walk follows pages of the documentation on emulated hosts, as a reader would: it runs each command that a
// page shows, and compares what is printed with what the page says. `make walks` puts what is printed now into the
// pages.
//
//	docs/ops/*.md -> commands in order -> emulated hosts -> output -> compared, or pasted
//
// A host is a network namespace, a root file system (an overlay of this machine's, in memory), processes and a host
// name of its own. systemctl there is this program under another name: it runs the one unit that there is, as its file
// says (Type=notify, Restart=on-failure, RestartPreventExitStatus=4). journalctl and ssh are this program as well.
// apt-get installs another build of Trireme, whatever it is asked for.
//
// A page's code blocks are taken for what a terminal shows:
//
//	db1# trireme status          root on db1; `$` is root on db1 as well, who has the operator's credential
//	cluster shop · …             what it prints, up to the next command or the end of the block
//	mysql> SELECT 1;             typed into the MySQL client that was started before; what it answers is not compared
//	Type … to continue: shop     what the program asks, and what is typed
//	db1# trireme adopt \         goes on in the next line
//
// Two texts are the same if they differ only in numbers (UUIDs and times are some) and in white space, line ends
// included. `…` on a page stands for anything. Of a command that shows no output only the exit code counts. What a page
// leaves to the reader (waiting, the same for the next host), and what has to happen before a page makes sense (a
// fault), is a step in the list of walks (list_test.go).
package walk
