package file

import (
	"fmt"
	"io/fs"
	"time"

	"golang.org/x/sys/unix"
)

// stamp tells one state of a file from another without reading it.
type stamp struct {
	dev, ino     uint64
	size         int64
	mtime, ctime unix.Timespec
}

// clockGrain is more than the distance of two file times that the kernel can
// tell apart: one tick of at most 10 ms.
const clockGrain = 20 * time.Millisecond

// stampOf follows links, as reading does. It refuses what would block a reader.
func stampOf(path string) (stamp, error) {
	var st unix.Stat_t
	err := unix.Stat(path, &st)
	if err == nil && st.Mode&unix.S_IFMT != unix.S_IFREG {
		err = errNotRegular
	}
	if err != nil {
		return stamp{}, fmt.Errorf("read the configuration: %w", &fs.PathError{Op: "stat", Path: path, Err: err})
	}
	return stamp{uint64(st.Dev), st.Ino, st.Size, st.Mtim, st.Ctim}, nil
}

// ifSure is s, or nothing when the file changed so shortly before it was read
// that a later change may have the same times.
func (s stamp) ifSure(read time.Time) stamp {
	if read.Sub(time.Unix(s.ctime.Unix())) < clockGrain {
		return stamp{}
	}
	return s
}
