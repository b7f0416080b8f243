// Package suite owns the tests that must hold on other kernels: the list of them,
// and a run of it in one virtual machine a kernel.
//
// The list says which tests of which package, and on which kernels if not on all.
// Each line of it must have run at least one test: a name that matches nothing any
// more, or a test that skips, is a failure like any other.
//
// It starts no machine itself (that is package testvm) and knows no test by name.
// It builds test programs with the go command, without cgo, so without the race
// detector too.
package suite
