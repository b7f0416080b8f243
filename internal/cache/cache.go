package cache

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Cache is a directory of entries, each a directory of files whose name tells
// exactly what it was made from. An entry that is not whole is made anew; those not
// used for longest go when all together are too big. Any number of processes may
// share it.
type Cache struct {
	dir string
	max int64 // bytes of all entries
}

// Entry is a cached directory, which stays as it is until it is closed.
type Entry struct {
	Dir  string
	lock *os.File
}

const (
	maxBytes     = 1 << 30
	manifestFile = "manifest.json"
	makingPrefix = "making-"
)

// Open makes the directory if need be. "" is the one called name in the user's cache
// directory.
func Open(dir, name string) (*Cache, error) {
	if dir == "" {
		base, err := os.UserCacheDir()
		if err != nil {
			return nil, fmt.Errorf("find cache directory: %w", err)
		}
		dir = filepath.Join(base, name)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("make cache: %w", err)
	}
	return &Cache{dir: dir, max: maxBytes}, nil
}

// Dir is the directory. What is in there beside entries is left alone.
func (c *Cache) Dir() string { return c.dir }

// Get returns the entry called key. If there is none, or one that is broken, fill
// makes it in an empty directory.
func (c *Cache) Get(key string, fill func(dir string) error) (_ *Entry, err error) {
	unlock, err := c.lockAll()
	if err != nil {
		return nil, err
	}
	defer unlock()
	if e, err := c.open(key); err == nil {
		return e, nil
	}
	if err := c.replace(key, fill); err != nil {
		return nil, err
	}
	e, err := c.open(key)
	if err != nil {
		return nil, fmt.Errorf("open new cache entry: %w", err)
	}
	return e, c.trim()
}

// Close lets the entry go.
func (e *Entry) Close() error { return e.lock.Close() }

// lockAll keeps other processes out. What a killed one had begun goes now.
func (c *Cache) lockAll() (unlock func(), err error) {
	f, err := os.OpenFile(filepath.Join(c.dir, "lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("lock cache: %w", err)
	}
	if err := flock(f, unix.LOCK_EX); err != nil {
		return nil, errors.Join(fmt.Errorf("lock cache: %w", err), f.Close())
	}
	left, _ := filepath.Glob(filepath.Join(c.dir, makingPrefix+"*"))
	for _, dir := range left {
		_ = os.RemoveAll(dir)
	}
	return func() { _ = f.Close() }, nil
}

// open checks an entry byte by byte: that is quick beside making it.
func (c *Cache) open(key string) (_ *Entry, err error) {
	dir := filepath.Join(c.dir, key)
	lock, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			_ = lock.Close()
		}
	}()
	if err := flock(lock, unix.LOCK_SH); err != nil {
		return nil, err
	}
	b, err := os.ReadFile(filepath.Join(dir, manifestFile))
	if err != nil {
		return nil, err
	}
	var want map[string]string
	if err := json.Unmarshal(b, &want); err != nil {
		return nil, err
	}
	for name, sum := range want {
		if got, err := FileSum(filepath.Join(dir, name)); err != nil || got != sum {
			return nil, errors.Join(fmt.Errorf("file %s is not what it was", name), err)
		}
	}
	now := time.Now()
	_ = os.Chtimes(dir, now, now) // used last
	return &Entry{Dir: dir, lock: lock}, nil
}

// replace makes an entry aside and puts it in place by one rename.
func (c *Cache) replace(key string, fill func(dir string) error) error {
	making, err := os.MkdirTemp(c.dir, makingPrefix)
	if err != nil {
		return fmt.Errorf("make cache entry: %w", err)
	}
	defer os.RemoveAll(making)
	fresh := filepath.Join(making, "entry")
	if err := os.Mkdir(fresh, 0o755); err != nil {
		return fmt.Errorf("make cache entry: %w", err)
	}
	if err := fill(fresh); err != nil {
		return err
	}
	if err := writeManifest(fresh); err != nil {
		return fmt.Errorf("make cache entry: %w", err)
	}
	at := filepath.Join(c.dir, key)
	if err := os.Rename(at, filepath.Join(making, "broken")); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove broken cache entry: %w", err)
	}
	if err := os.Rename(fresh, at); err != nil {
		return fmt.Errorf("publish cache entry: %w", err)
	}
	return nil
}

// trim removes the entries used longest ago until the rest is small enough. One in
// use stays.
func (c *Cache) trim() error {
	entries, err := c.entries()
	if err != nil {
		return fmt.Errorf("trim cache: %w", err)
	}
	var sum int64
	for _, e := range entries { // last used first
		if sum += e.size; sum > c.max && c.remove(e.dir) {
			sum -= e.size
		}
	}
	return nil
}

func (c *Cache) remove(dir string) bool {
	lock, err := os.Open(dir)
	if err != nil {
		return false
	}
	defer lock.Close()
	return flock(lock, unix.LOCK_EX|unix.LOCK_NB) == nil && os.RemoveAll(dir) == nil
}

type entrySize struct {
	dir  string
	size int64
	used time.Time
}

func (c *Cache) entries() ([]entrySize, error) {
	dirs, err := os.ReadDir(c.dir)
	if err != nil {
		return nil, err
	}
	var all []entrySize
	for _, d := range dirs {
		if !d.IsDir() || strings.HasPrefix(d.Name(), makingPrefix) {
			continue
		}
		e := entrySize{dir: filepath.Join(c.dir, d.Name())}
		if info, err := d.Info(); err == nil {
			e.used = info.ModTime()
		}
		files, _ := os.ReadDir(e.dir)
		for _, f := range files {
			if info, err := f.Info(); err == nil {
				e.size += info.Size()
			}
		}
		all = append(all, e)
	}
	slices.SortFunc(all, func(a, b entrySize) int { return b.used.Compare(a.used) })
	return all, nil
}

func writeManifest(dir string) error {
	files, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	sums := make(map[string]string)
	for _, f := range files {
		if sums[f.Name()], err = FileSum(filepath.Join(dir, f.Name())); err != nil {
			return err
		}
	}
	b, err := json.MarshalIndent(sums, "", "\t")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, manifestFile), b, 0o644)
}

// FileSum is the SHA-256 of a file, in hexadecimal.
func FileSum(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

func flock(f *os.File, how int) error {
	for {
		if err := unix.Flock(int(f.Fd()), how); err != unix.EINTR {
			return err
		}
	}
}
