package testkube

import (
	"context"
	"fmt"
	"net/netip"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// Service is one that selects pods.
type Service struct {
	Name     string
	Selector map[string]string
	NodePort bool
	Ports    []Port

	ClusterIPs []netip.Addr // given by the API server, one a family
}

// Port is a port of a service.
type Port struct {
	Name   string
	Proto  string // tcp | udp
	Port   uint16
	Target uint16 // at the pods

	NodePort uint16 // given by the API server
}

// AddService makes a service of every family that the cluster has, and returns it with
// the addresses and ports that the API server has given it.
func (c *Cluster) AddService(s Service) Service {
	c.t.Helper()
	c.do("make service "+s.Name, func(ctx context.Context) error {
		made, err := c.Client.CoreV1().Services(namespace).Create(ctx, s.object(), metav1.CreateOptions{})
		if err != nil {
			return err
		}
		for _, text := range made.Spec.ClusterIPs {
			ip, err := netip.ParseAddr(text)
			if err != nil {
				return err
			}
			s.ClusterIPs = append(s.ClusterIPs, ip)
		}
		for i, p := range made.Spec.Ports {
			s.Ports[i].NodePort = uint16(p.NodePort)
		}
		return nil
	})
	return s
}

func (s Service) object() *corev1.Service {
	policy := corev1.IPFamilyPolicyPreferDualStack
	o := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: s.Name},
		Spec:       corev1.ServiceSpec{Selector: s.Selector, IPFamilyPolicy: &policy},
	}
	if s.NodePort {
		o.Spec.Type = corev1.ServiceTypeNodePort
	}
	for _, p := range s.Ports {
		o.Spec.Ports = append(o.Spec.Ports, corev1.ServicePort{
			Name: p.Name, Protocol: corev1.Protocol(strings.ToUpper(p.Proto)), Port: int32(p.Port), TargetPort: intstr.FromInt32(int32(p.Target)),
		})
	}
	return o
}

// Endpoints counts the endpoints of a service that are ready, by the controller's slices
// of one family.
func (c *Cluster) Endpoints(service string, v6 bool) (n int, err error) {
	slices, err := c.Client.DiscoveryV1().EndpointSlices(namespace).List(c.t.Context(),
		metav1.ListOptions{LabelSelector: "kubernetes.io/service-name=" + service})
	if err != nil {
		return 0, fmt.Errorf("count endpoints: %w", err)
	}
	for _, s := range slices.Items {
		if (s.AddressType == "IPv6") != v6 {
			continue
		}
		for _, e := range s.Endpoints {
			if e.Conditions.Ready != nil && *e.Conditions.Ready {
				n++
			}
		}
	}
	return n, nil
}
