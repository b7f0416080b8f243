package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"unicode/utf8"

	"golang.org/x/sys/unix"
)

// screenWidth is what the demonstration is written for: 80 columns, and a step
// at a time on 24 rows.
const screenWidth = 80

// The few colours, on a terminal that wants them.
const (
	styleTitle   = "1"  // bold
	styleCommand = "36" // cyan
	styleProof   = "32" // green
)

// screen prints the story.
type screen struct {
	out    io.Writer
	colour bool
	err    error // the first
}

func newScreen(out io.Writer) *screen {
	return &screen{out: out, colour: wantsColour(out)}
}

// wantsColour follows no-color.org.
func wantsColour(out io.Writer) bool {
	f, ok := out.(*os.File)
	if !ok || os.Getenv("NO_COLOR") != "" || os.Getenv("TERM") == "dumb" {
		return false
	}
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}

// title begins a step.
func (s *screen) title(text string) {
	s.line("", "")
	s.line(styleTitle, text)
	s.line(styleTitle, strings.Repeat("-", len(text)))
}

// say prints lines as they are.
func (s *screen) say(text string) { s.lines("", text) }

// command prints what a user would type.
func (s *screen) command(line string) { s.line(styleCommand, "$ "+line) }

// output prints what a command printed.
func (s *screen) output(text string) { s.lines("", text) }

// proof prints what has just been checked.
func (s *screen) proof(format string, args ...any) {
	s.lines(styleProof, "=> "+fmt.Sprintf(format, args...))
}

func (s *screen) lines(style, text string) {
	for line := range strings.Lines(text) {
		s.line(style, strings.TrimSuffix(line, "\n"))
	}
}

func (s *screen) line(style, text string) {
	text = fit(strings.TrimRight(text, " "))
	if s.colour && style != "" {
		text = "\x1b[" + style + "m" + text + "\x1b[0m"
	}
	if _, err := io.WriteString(s.out, text+"\n"); err != nil && s.err == nil {
		s.err = err
	}
}

// fit ends a line that is too long with "…".
func fit(line string) string {
	if utf8.RuneCountInString(line) <= screenWidth {
		return line
	}
	return string([]rune(line)[:screenWidth-1]) + "…"
}
