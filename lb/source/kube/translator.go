package kube

import (
	"net/netip"
	"time"

	"github.com/baton-lb/baton/lb"
)

// Options configures a Translator. The zero value works.
type Options struct {
	Node              string         // this node's name; "" = no endpoint is on it
	NodePortAddresses []netip.Prefix // which of the host's addresses serve node ports; empty = all
	ClusterCIDRs      []netip.Prefix // of all pods; empty = those of the node's own are known as clients inside
}

// Changes is what has changed since the last Take. Delete and Upsert belong
// together: a frontend may move from one service to another.
type Changes struct {
	Delete []string // names of services
	Upsert []lb.Service

	// Faults are all that stand now for each object whose faults have changed.
	// Cleared are the objects that had some and have none any more.
	Faults  []Fault
	Cleared []Object

	// Triggers are the times at which what led to these changes happened, as the
	// slices say (endpoints.kubernetes.io/last-change-trigger-time).
	Triggers []time.Time
}

// Translator makes services out of Services and slices. It is not safe for
// concurrent use.
type Translator struct{}

// NewTranslator makes one that knows of no object yet.
func NewTranslator(o Options) *Translator { return &Translator{} }

// SetService adds or updates a Service.
func (t *Translator) SetService(s *Service) {}

// DeleteService forgets a Service.
func (t *Translator) DeleteService(namespace, name string) {}

// SetSlice adds or updates a slice.
func (t *Translator) SetSlice(s *Slice) {}

// DeleteSlice forgets a slice.
func (t *Translator) DeleteSlice(namespace, name string) {}

// SetNode says what node this is.
func (t *Translator) SetNode(n *Node) {}

// SetHost says which addresses this host has, for node ports on some of them
// only.
func (t *Translator) SetHost(addresses []netip.Addr) {}

// Take returns what has changed since it was last called.
func (t *Translator) Take() Changes { return Changes{} }
