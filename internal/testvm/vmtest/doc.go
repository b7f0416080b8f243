// Command vmtest runs the tests that must hold on other kernels, in one virtual
// machine a kernel.
//
//	go run ./internal/testvm/vmtest                              the list, on all kernels
//	go run ./internal/testvm/vmtest -kernels 6.12 -only offload  part of it
//	go run ./internal/testvm/vmtest -list /tmp/list -v           another list; all output
//
// The list is internal/testvm/tests.txt: one line selects tests of a package.
package main
