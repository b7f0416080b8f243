package kube

import (
	"errors"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/baton-lb/baton/lb"
	"github.com/baton-lb/baton/lb/source/file"
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
	annotationPolicy  = annotationPrefix + "policy"
	annotationMode    = annotationPrefix + "mode"
)

var annotations = []string{annotationBalance, annotationClient, annotationRemoved, annotationOffload, annotationDrain, annotationPolicy, annotationMode}

// notPolicy are the keys of baton.yaml that the object has words for, or the
// kubelet has seen to.
var notPolicy = []string{"affinity", "health", "sctp"}

// policies are what a Service says of its flows. Zero values are the defaults of
// lb.Default.
type policies struct {
	affinity lb.Affinity
	balance  lb.Algorithm
	client   lb.ClientAddress
	removed  lb.RemovedPolicy
	offload  lb.OffloadMode
	drain    *time.Duration
	mode     Mode
	keys     *lb.Service // what the keys of annotationPolicy make of lb.Default; nil = there are none
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
	p.mode = readWord(s, f, annotationMode, Modes)
	p.readKeys(s, f)
	reportUnknown(s, f)
	return p
}

// readKeys reads keys of baton.yaml. An annotation of its own goes before the key
// that it stands for.
func (p *policies) readKeys(s *corev1.Service, f *faults) {
	v, ok := s.Annotations[annotationPolicy]
	if !ok {
		return
	}
	keys := lb.Default("")
	keys.ClientAddress = "" // by frontend, unless it is said
	keys.Mode = ""          // as the instance does, unless it is said
	err := file.ParsePolicies(annotationPolicy, []byte(v), &keys, notPolicy...)
	if err != nil {
		f.add(annotationPath(annotationPolicy), "%s; the default is served", messages(err))
		return
	}
	p.keys = &keys
	if p.client == "" {
		p.client = keys.ClientAddress
	}
	if p.mode == "" {
		p.mode = Mode(keys.Mode)
	}
}

// messages are what is wrong with keys, in one line.
func messages(err error) string {
	faults, ok := errors.AsType[file.Faults](err)
	if !ok {
		return err.Error()
	}
	all := make([]string, len(faults))
	for i, f := range faults {
		all[i] = f.Message
	}
	return strings.Join(all, "; ")
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
	if k := p.keys; k != nil {
		s.Balance, s.Timeouts, s.Offload, s.Limits, s.Steer = k.Balance, k.Timeouts, k.Offload, k.Limits, k.Steer
		s.AcceptProxy, s.Allow, s.Deny = k.AcceptProxy, k.Allow, k.Deny
		s.OnBackendRemoved, s.DrainTimeout = k.OnBackendRemoved, k.DrainTimeout
	}
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
