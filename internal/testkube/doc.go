// Package testkube owns Kubernetes clusters that exist for one test: a real API server
// with etcd behind it and the real controller that makes EndpointSlices, on a host of
// the test's own.
//
//	cluster := testkube.Start(t, host, testkube.Options{ServiceCIDRs: cidrs})
//	cluster.AddNode("node1", "zone-a", node.IP4)
//	cluster.AddPod(testkube.Pod{Name: "web-1", Node: "node1", Labels: labels, IPs: ips})
//	file := cluster.Kubeconfig(testkube.ServiceAccount("kube-system", "baton"))
//
// There are no kubelets and no scheduler: what runs behind a pod's address is the
// test's business, and so is whether the pod is ready.
//
// etcd is Debian's. The other programs are one, package control, which is a module of
// its own; building it takes minutes, once: see [Build].
//
// # What it refuses to do
//
// It knows nothing of the balancer, leaves nothing running or lying about, and uses no
// address of the machine's own.
package testkube
