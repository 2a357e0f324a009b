// Package dir is an object store in a directory of a local file system: the
// embedded default, and the simplest store that keeps the whole law of package
// objstore. The object with key a/b/c is the file a/b/c below the root.
//
// # Writing
//
//	create  a/b/c␠<id>.upload     no key has a space, so no reader can name it
//	write   its parts, several at a time, each summed on its way
//	fsync   it
//	read    it back through a fresh descriptor, and compare every part's sum
//	link    it to a/b/c           atomic; fails if the key is taken
//	unlink  the temporary name
//	fsync   a/b, a and the root   every time, whoever made those directories
//
// The object is there, whole and forever, from link on, and Upload returns after
// the last fsync. All directories up to the root are synced, not only those that
// this Upload made: a directory may have been made by a process that died before
// it could sync it. link(2), unlike rename(2), never replaces anything; if the
// key is taken, the two are compared byte by byte.
//
// # What the proof is worth
//
// A part's evidence is objstore.ReadBack: the bytes were read through the file
// system after fsync had returned. They come out of the page cache as a rule,
// so this proves what the kernel holds and has acknowledged as written, not
// what the medium will return; audit.Verify reads again later. It catches bytes
// that changed on their way into the file and writes that were lost, and makes
// an Upload about a fifth slower. With Options.NoReadBack the evidence is
// objstore.Echoed: the sums are those of the bytes handed to the file system.
//
// # Crashes
//
// A process killed at any instant leaves either no object or the whole one, and at
// worst a temporary file, which Uploads lists and Abort removes. After a power loss
// the same holds for a file system that keeps what fsync acknowledged. Running
// the same Upload again succeeds.
//
// # Not handled
//
// The file system must have hard links (FAT has none) and tell names apart by
// case; network file systems must do so atomically. Windows cannot sync
// directories. The last name in a key may have at most 231 bytes, so that its
// temporary name fits in 255. No key may be a directory of another (a and a/b):
// the second is ErrConflict. Directories that have become empty stay. Tokens
// are not kept: bytes are compared instead. A symbolic link inside the root is
// followed by Get and not shown by List; one that leads out of the root is an
// error.
package dir
