package kube

import (
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Node is what is wanted of the node that this is.
type Node struct {
	metav1.ObjectMeta
	Zone      string
	Addresses []netip.Addr   // that it is reached at
	PodCIDRs  []netip.Prefix // of its own pods
}

// ReadNode strips a node. Addresses that are none are left out.
func ReadNode(n *corev1.Node) *Node {
	node := &Node{ObjectMeta: trimmed(&n.ObjectMeta), Zone: n.Labels[corev1.LabelTopologyZone]}
	for _, x := range n.Status.Addresses {
		if x.Type != corev1.NodeInternalIP && x.Type != corev1.NodeExternalIP {
			continue
		}
		if a, err := parseAddr(x.Address); err == nil {
			node.Addresses = appendNew(node.Addresses, a)
		}
	}
	cidrs := n.Spec.PodCIDRs
	if len(cidrs) == 0 && n.Spec.PodCIDR != "" {
		cidrs = []string{n.Spec.PodCIDR}
	}
	for _, s := range cidrs {
		if p, err := parsePrefix(s); err == nil {
			node.PodCIDRs = append(node.PodCIDRs, p)
		}
	}
	return node
}

// says reports whether both say the same of the node.
func (n *Node) says(m *Node) bool {
	return n.Name == m.Name && n.Zone == m.Zone && slices.Equal(n.Addresses, m.Addresses) && slices.Equal(n.PodCIDRs, m.PodCIDRs)
}
