package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/baton-lb/baton/internal/admin/client"
)

// watchEvery is how often --watch looks.
const watchEvery = time.Second

// view is a list that a command shows.
type view struct {
	path   string // of the API
	query  url.Values
	format output
	watch  bool

	// draw reads the list and prints a table of at most limit rows (0 = all).
	draw func(list io.Reader, out io.Writer, limit int) error
}

// show prints the list, once or again and again.
func (v *view) show(ctx context.Context, c *client.Client, out io.Writer) error {
	switch {
	case v.watch && v.format == asJSON:
		return v.followJSON(ctx, c, out)
	case v.watch:
		return v.redraw(ctx, c, out)
	}
	list, err := c.Get(ctx, v.path, v.query)
	if err != nil {
		return err
	}
	defer list.Close()
	if v.format == asJSON {
		if _, err := io.Copy(out, list); err != nil {
			return fmt.Errorf("copy the list: %w", err)
		}
		return nil
	}
	return v.draw(list, out, 0)
}

// followJSON prints a document, on a line, each time that the list has changed.
func (v *view) followJSON(ctx context.Context, c *client.Client, out io.Writer) error {
	lines, err := c.Watch(ctx, v.path, v.query, watchEvery)
	if err != nil {
		return err
	}
	defer lines.Close()
	for {
		if err := lines.WriteNext(out); errors.Is(err, io.EOF) {
			return errStopped
		} else if err != nil {
			return err
		}
	}
}

// errStopped says why a stream ended that the reader did not end.
var errStopped = errors.New("the instance has stopped")

// redraw prints the table over and over: in place on a terminal, else below
// each other and only when it has changed.
func (v *view) redraw(ctx context.Context, c *client.Client, out io.Writer) error {
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	var last []byte
	for {
		rows, terminal := terminalRows(out)
		now, err := v.screen(ctx, c, rows)
		if err != nil {
			return err
		}
		switch {
		case terminal:
			_, err = out.Write(inPlace(now))
		case !bytes.Equal(now, last):
			_, err = fmt.Fprintf(out, "%s\n", now)
		}
		if err != nil {
			return err
		}
		last = now
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// screen draws one table of at most rows lines (0 = all).
func (v *view) screen(ctx context.Context, c *client.Client, rows int) ([]byte, error) {
	list, err := c.Get(ctx, v.path, v.query)
	if err != nil {
		return nil, err
	}
	defer list.Close()
	var b bytes.Buffer
	if rows > 0 {
		rows = max(rows-3, 1) // the title, the line that says what is missing, the cursor
	}
	err = v.draw(list, &b, rows)
	return b.Bytes(), err
}

// inPlace goes to the top left, clears each line's rest, and what is below.
func inPlace(screen []byte) []byte {
	const home, clearLine, clearBelow = "\x1b[H", "\x1b[K", "\x1b[J"
	body := bytes.ReplaceAll(screen, []byte("\n"), []byte(clearLine+"\r\n"))
	return append(append([]byte(home), body...), clearBelow...)
}

// terminalRows is the height of the terminal that out is, if it is one.
func terminalRows(out io.Writer) (rows int, ok bool) {
	f, ok := out.(*os.File)
	if !ok {
		return 0, false
	}
	size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	if err != nil {
		return 0, false
	}
	return int(size.Row), true
}

// endTable ends a table and says how many rows were not shown.
func endTable(t *table, out io.Writer) error {
	if err := t.close(); err != nil {
		return err
	}
	if n := t.hidden(); n > 0 {
		_, err := fmt.Fprintf(out, "… and %d more\n", n)
		return err
	}
	return nil
}
