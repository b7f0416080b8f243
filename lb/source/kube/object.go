package kube

import (
	"math"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/baton-lb/baton/internal/flow"
)

// The labels that say that an object is not for the service proxy of a node.
// Slices have those of their Service.
const (
	labelProxyName = "service.kubernetes.io/service-proxy-name"
	labelHeadless  = corev1.IsHeadlessService
)

// forOthers reports whether an object has one of those labels.
func forOthers(m *metav1.ObjectMeta) bool {
	_, other := m.Labels[labelProxyName]
	_, headless := m.Labels[labelHeadless]
	return other || headless
}

// trimmed is what is kept of an object's metadata.
func trimmed(m *metav1.ObjectMeta) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Namespace: m.Namespace, Name: m.Name, UID: m.UID,
		ResourceVersion: m.ResourceVersion, CreationTimestamp: m.CreationTimestamp,
	}
}

// keyOf is "namespace/name".
func keyOf(namespace, name string) string { return namespace + "/" + name }

// protoOf reads a protocol. The API writes TCP where nothing was said; a file
// may say nothing.
func protoOf(p corev1.Protocol) (flow.Proto, bool) {
	switch p {
	case corev1.ProtocolTCP, "":
		return flow.TCP, true
	case corev1.ProtocolUDP:
		return flow.UDP, true
	case corev1.ProtocolSCTP:
		return flow.SCTP, true
	}
	return 0, false
}

// portOf reads a port number that must not be 0.
func portOf(n int32) (uint16, bool) {
	return uint16(n), n > 0 && n <= math.MaxUint16
}
