// Package pump owns the movement of bytes between two connected stream sockets,
// on raw descriptors and without ever blocking. A Half moves one direction; its
// owner tells it which socket has become ready and calls Move.
//
// Small messages are copied through a buffer that all Halves of a Kit share;
// once a direction fills that buffer it is spliced through a pipe (splice(2)),
// where the bytes never enter this process. A pipe or a buffer is held only
// while bytes are in it, so an idle connection costs its two sockets.
//
// It refuses to close, reset or time anything: it reports what it met and whose
// fault it was, and the owner decides.
package pump
