// Package arch owns the shape of the module: which package may import which of
// ours, which library belongs where, and that every package says what it is. It
// holds no code, only the table (table_test.go) and the tests that hold the tree
// to it.
//
// The table is the design in a form that cannot be overlooked. A package that is
// not in it fails the test: add a row, and the reason to docs/decisions.
//
// It never judges what the code does, only where it stands.
package arch
