package report

import (
	"bytes"
	"fmt"
	"os"
	"strings"
)

// Between these lines a document has figures that are not written by hand.
const (
	beginMark = "<!-- figures: begin -->"
	endMark   = "<!-- figures: end -->"
)

// Update puts the report between the marks of a Markdown document.
func (r *Report) Update(path string, references []string) error {
	old, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("update the document: %w", err)
	}
	var figures bytes.Buffer
	if err := r.Markdown(&figures, references); err != nil {
		return err
	}
	text, err := replace(string(old), figures.String())
	if err != nil {
		return fmt.Errorf("update %s: %w", path, err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		return fmt.Errorf("update the document: %w", err)
	}
	return nil
}

func replace(text, figures string) (string, error) {
	before, rest, ok := strings.Cut(text, beginMark)
	_, after, closed := strings.Cut(rest, endMark)
	if !ok || !closed {
		return "", fmt.Errorf("it lacks the lines %s and %s", beginMark, endMark)
	}
	return before + beginMark + "\n\n" + figures + endMark + after, nil
}
