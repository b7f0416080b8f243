// Package health owns what is known about backends from asking them: active probes
// (TCP, HTTP, UDP, SCTP) with their rise and fall counts, the ejection of backends
// that flows found broken, and the health-check node ports of Kubernetes.
//
// It reads the store's snapshots and writes its verdicts back through the store's
// single writer. It will never choose a backend for a flow, and never end one.
//
// There is no code here yet. Until then a backend's health is what its source says
// and what connecting to it shows: the penalty of a failed dial belongs to package
// relay.
package health
