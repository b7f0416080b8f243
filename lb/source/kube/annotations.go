package kube

import (
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/baton-lb/baton/lb"
)

// The annotations of a Service that Baton knows. Their words are those of
// baton.yaml.
const (
	annotationPrefix  = "baton.dev/"
	annotationBalance = annotationPrefix + "balance"
	annotationClient  = annotationPrefix + "client-address"
	annotationRemoved = annotationPrefix + "on-backend-removed"
	annotationOffload = annotationPrefix + "offload"
	annotationDrain   = annotationPrefix + "drain-timeout"
)

var annotations = []string{annotationBalance, annotationClient, annotationRemoved, annotationOffload, annotationDrain}

// policies are what a Service says of its flows. Zero values are the defaults of
// lb.Default.
type policies struct {
	affinity lb.Affinity
	balance  lb.Algorithm
	client   lb.ClientAddress
	removed  lb.RemovedPolicy
	offload  lb.OffloadMode
	drain    *time.Duration
}

func readPolicies(s *corev1.Service, f *faults) policies {
	p := policies{
		affinity: affinityOf(s, f),
		balance:  readWord(s, f, annotationBalance, lb.Algorithms),
		client:   readWord(s, f, annotationClient, lb.ClientAddresses),
		removed:  readWord(s, f, annotationRemoved, lb.RemovedPolicies),
		offload:  readWord(s, f, annotationOffload, lb.OffloadModes),
	}
	if v, ok := s.Annotations[annotationDrain]; ok {
		d, err := time.ParseDuration(v)
		if err != nil || d < 0 {
			f.add(annotationPath(annotationDrain), "%q is no duration, as 30s; the default is served", v)
		} else {
			p.drain = &d
		}
	}
	reportUnknown(s, f)
	return p
}

// readWord reads an annotation that must be one of some words; "" if it is not
// there, or is none of them.
func readWord[T ~string](s *corev1.Service, f *faults, name string, known []T) T {
	v, ok := s.Annotations[name]
	if !ok {
		return ""
	}
	if slices.Contains(known, T(v)) {
		return T(v)
	}
	words := make([]string, len(known))
	for i, k := range known {
		words[i] = string(k)
	}
	f.add(annotationPath(name), "%q is unknown: use %s; the default is served", v, strings.Join(words, ", "))
	return ""
}

// reportUnknown: a user must never believe that an annotation is in force when it
// is not.
func reportUnknown(s *corev1.Service, f *faults) {
	var unknown []string
	for name := range s.Annotations {
		if strings.HasPrefix(name, annotationPrefix) && !slices.Contains(annotations, name) {
			unknown = append(unknown, name)
		}
	}
	slices.Sort(unknown)
	for _, name := range unknown {
		f.add(annotationPath(name), "is unknown: there are %s", strings.Join(annotations, ", "))
	}
}

func annotationPath(name string) string { return "metadata.annotations[" + name + "]" }

// apply puts the policies into a service made by lb.Default.
func (p *policies) apply(s *lb.Service) {
	s.Affinity = p.affinity
	if p.balance != "" {
		s.Balance = p.balance
	}
	if p.removed != "" {
		s.OnBackendRemoved = p.removed
	}
	if p.offload != "" {
		s.Offload.Mode = p.offload
	}
	if p.drain != nil {
		s.DrainTimeout = *p.drain
	}
}
