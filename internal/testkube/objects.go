package testkube

import (
	"context"
	"net/netip"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/baton-lb/baton/internal/testnet"
)

// namespace is where everything is.
const namespace = "default"

// Pod is a pod that runs already.
type Pod struct {
	Name   string
	Node   string
	Labels map[string]string
	IPs    []netip.Addr // the primary one first
}

// do calls a function with a context of some seconds.
func (c *Cluster) do(what string, f func(ctx context.Context) error) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), testnet.Patience(20*time.Second))
	defer cancel()
	if err := f(ctx); err != nil {
		c.t.Fatalf("%s: %v", what, err)
	}
}

// AddNode makes a node that is ready.
func (c *Cluster) AddNode(name, zone string, ips ...netip.Addr) {
	c.t.Helper()
	c.do("make node "+name, func(ctx context.Context) error {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{
			corev1.LabelHostname: name, corev1.LabelTopologyZone: zone,
		}}}
		n, err := c.Client.CoreV1().Nodes().Create(ctx, n, metav1.CreateOptions{})
		if err != nil {
			return err
		}
		for _, ip := range ips {
			n.Status.Addresses = append(n.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: ip.String()})
		}
		n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
		_, err = c.Client.CoreV1().Nodes().UpdateStatus(ctx, n, metav1.UpdateOptions{})
		return err
	})
}

// AddPod makes a pod that is ready.
func (c *Cluster) AddPod(p Pod) {
	c.t.Helper()
	c.do("make pod "+p.Name, func(ctx context.Context) error {
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: p.Name, Labels: p.Labels},
			Spec:       corev1.PodSpec{NodeName: p.Node, Containers: []corev1.Container{{Name: "it", Image: "none"}}},
		}
		_, err := c.Client.CoreV1().Pods(namespace).Create(ctx, pod, metav1.CreateOptions{})
		return err
	})
	c.setStatus(p.Name, func(s *corev1.PodStatus) {
		s.Phase, s.PodIP = corev1.PodRunning, p.IPs[0].String()
		for _, ip := range p.IPs {
			s.PodIPs = append(s.PodIPs, corev1.PodIP{IP: ip.String()})
		}
		s.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	})
}

// SetReady says whether a pod is ready.
func (c *Cluster) SetReady(pod string, ready bool) {
	c.t.Helper()
	c.setStatus(pod, func(s *corev1.PodStatus) {
		s.Conditions[0].Status = corev1.ConditionFalse
		if ready {
			s.Conditions[0].Status = corev1.ConditionTrue
		}
	})
}

func (c *Cluster) setStatus(name string, change func(*corev1.PodStatus)) {
	c.t.Helper()
	c.do("tell how pod "+name+" is", func(ctx context.Context) error {
		pod, err := c.Client.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		change(&pod.Status)
		_, err = c.Client.CoreV1().Pods(namespace).UpdateStatus(ctx, pod, metav1.UpdateOptions{})
		return err
	})
}

// DeletePod removes a pod at once.
func (c *Cluster) DeletePod(name string) {
	c.t.Helper()
	now := int64(0)
	c.do("delete pod "+name, func(ctx context.Context) error {
		return c.Client.CoreV1().Pods(namespace).Delete(ctx, name, metav1.DeleteOptions{GracePeriodSeconds: &now})
	})
}
