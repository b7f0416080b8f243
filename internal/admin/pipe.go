package admin

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"golang.org/x/sys/unix"
)

// A message of a Pipe is four bytes of length, big-endian, and so much JSON. The
// descriptors that belong to it come with its first byte (unix(7), SCM_RIGHTS).
const (
	pipeHead    = 4
	maxMessage  = 16 << 20
	maxPipeFDs  = 64 // in one message; the kernel takes 253 (SCM_MAX_FD)
	pipeTimeout = time.Minute
)

// errLostFDs is a message whose descriptors this process had no room for.
var errLostFDs = errors.New("descriptors have been lost on the way: raise the limit (ulimit -n)")

// Pipe carries messages with descriptors between two processes, over a unix
// socket. One side speaks at a time.
type Pipe struct {
	conn    *net.UnixConn
	release func() error
	timeout time.Duration
}

// NewPipe makes a Pipe of a connection, which release closes.
func NewPipe(conn *net.UnixConn, release func() error) *Pipe {
	return &Pipe{conn: conn, release: release, timeout: pipeTimeout}
}

// SetTimeout bounds how long a message may take to be sent, or to come. It is a
// minute before.
func (p *Pipe) SetTimeout(d time.Duration) { p.timeout = d }

// PeerPID is the process at the other end, as the kernel knows it.
func (p *Pipe) PeerPID() (int, error) { return peerPID(p.conn) }

// Send sends a message. The descriptors stay the caller's.
func (p *Pipe) Send(v any, fds ...int) error {
	text, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("write a message: %w", err)
	}
	if len(text) > maxMessage || len(fds) > maxPipeFDs {
		return fmt.Errorf("a message of %d bytes and %d descriptors is too long", len(text), len(fds))
	}
	frame := binary.BigEndian.AppendUint32(make([]byte, 0, pipeHead+len(text)), uint32(len(text)))
	frame = append(frame, text...)
	var rights []byte
	if len(fds) > 0 {
		rights = unix.UnixRights(fds...)
	}
	p.conn.SetWriteDeadline(time.Now().Add(p.timeout))
	n, _, err := p.conn.WriteMsgUnix(frame, rights, nil)
	if err == nil && n < len(frame) {
		_, err = p.conn.Write(frame[n:])
	}
	if err != nil {
		return fmt.Errorf("send a message: %w", err)
	}
	return nil
}

// Receive waits for a message. The descriptors that come with it are the caller's;
// with an error there are none.
func (p *Pipe) Receive(v any) (fds []int, err error) {
	defer func() {
		if err != nil {
			closeFDs(fds)
			fds, err = nil, fmt.Errorf("receive a message: %w", err)
		}
	}()
	p.conn.SetReadDeadline(time.Now().Add(p.timeout))
	var head [pipeHead]byte
	n, fds, err := p.receiveFirst(head[:])
	if err != nil {
		return fds, err
	}
	if _, err := io.ReadFull(p.conn, head[n:]); err != nil {
		return fds, err
	}
	size := binary.BigEndian.Uint32(head[:])
	if size > maxMessage {
		return fds, fmt.Errorf("%d bytes are too long", size)
	}
	text := make([]byte, size)
	if _, err := io.ReadFull(p.conn, text); err != nil {
		return fds, err
	}
	return fds, json.Unmarshal(text, v)
}

// receiveFirst reads the beginning of a message, with its descriptors.
func (p *Pipe) receiveFirst(b []byte) (n int, fds []int, err error) {
	oob := make([]byte, unix.CmsgSpace(4*maxPipeFDs))
	n, oobn, flags, _, err := p.conn.ReadMsgUnix(b, oob)
	if err == nil && n == 0 {
		err = io.EOF
	}
	if err != nil {
		return n, nil, err
	}
	controls, err := unix.ParseSocketControlMessage(oob[:oobn])
	if err != nil {
		return n, nil, err
	}
	for i := range controls {
		if more, err := unix.ParseUnixRights(&controls[i]); err == nil {
			fds = append(fds, more...)
		}
	}
	if flags&unix.MSG_CTRUNC != 0 {
		err = errLostFDs
	}
	return n, fds, err
}

func closeFDs(fds []int) {
	for _, fd := range fds {
		unix.Close(fd)
	}
}

// Close ends the conversation. It may be called more than once.
func (p *Pipe) Close() error {
	err := p.release()
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}
