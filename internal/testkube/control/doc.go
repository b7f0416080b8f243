// Command control is as much of a Kubernetes control plane as tests of a proxy need:
//
//	control apiserver FLAG...       kube-apiserver, with the flags that it has
//	control endpointslices FILE     the controller of kube-controller-manager that makes
//	                                EndpointSlices, by a kubeconfig
//
// One program for both is linked once, and of kube-controller-manager what nobody needs
// here is not built.
//
// It is a module of its own: nobody who builds the balancer pays for Kubernetes. Its
// staging modules are named v0.0.0 in the go.mod of k8s.io/kubernetes; the replace
// lines of ours say which release they are.
package main
