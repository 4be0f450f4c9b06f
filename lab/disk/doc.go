// Package disk gives a directory a disk of its own whose power can be cut.
//
//	d, err := disk.New(ctx, "/scratch/n1", 4<<30) // /scratch/n1 is an empty ext4 file system now
//	kill(pids); d.PowerOff()                      // in this order
//	d.PowerOn()                                   // what fsync had promised is there
//	d.Close()
//
// The file system lives in the sparse file DIR.disk on a loop device. The device reads and writes that file with direct
// I/O where the file system below can, so an fsync costs what it costs on this machine. The power is cut by ext4's
// shutdown ioctl without a flush of its journal: pages that were not written yet stay unwritten, what the journal has
// not committed yet never happens, and every access fails with EIO from then on. The next mount recovers the journal,
// as after a power loss.
//
// What is not emulated: a disk that loses what it was given but not told to flush, or that tears a sector. A write with
// O_DIRECT survives without fdatasync here; its allocation does not, where it needed one.
//
// Mounts belong to the whole process and to all that it starts: a mount namespace is a property of threads, and a Go
// program cannot move all of its own into one. So what a killed process leaves behind is a mount. The next New, in
// whatever process, removes it; the loop device frees itself with its last user.
package disk
