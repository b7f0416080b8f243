package bpf

import (
	"github.com/cilium/ebpf/asm"
)

// featureSocketLookup is what clientAddress transparent uses.
var featureSocketLookup = helperFeature("bpf_skc_lookup_tcp", "5.2", "answers to clients' addresses, for sockets of this host", asm.FnSkcLookupTcp)

// DivertFeatures lists what diverting uses, in the order in which to ask.
func DivertFeatures() []Feature { return []Feature{featureSocketLookup} }
