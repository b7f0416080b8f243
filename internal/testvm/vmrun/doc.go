// Command vmrun runs a program as root on another kernel, in a virtual machine that
// exists for it alone.
//
//	go build -o /tmp/vmrun ./internal/testvm/vmrun
//	CGO_ENABLED=0 go test -c -o /tmp/bpf.test ./offload/bpf
//	/tmp/vmrun -kernel 6.12 -file /tmp/bpf.test -- ./bpf.test -test.v -test.run Guard
//	/tmp/vmrun -tools sh,ip,nft,uname -- sh -c 'uname -r; nft list ruleset'
//
// The program starts in /root, where -file puts files too. Its exit status is
// vmrun's. Otherwise vmrun says on standard error what happened, and the status is
//
//	124  the machine did not end in its time
//	125  the machine ended before the program did: a panic, or it did not start
//	126  there was no machine: usage, a missing program, no such kernel
package main
