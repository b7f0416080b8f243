package store

import (
	"slices"

	"github.com/baton-lb/baton/lb"
)

// equal reports whether a and b say the same. It is written by hand because a
// source may hand over everything again every second: reflection is a hundred
// times as slow. A test holds it against the fields of the model.
func equal(a, b *lb.Service) bool {
	return a.Name == b.Name &&
		a.Mode == b.Mode &&
		a.Unsteered == b.Unsteered &&
		a.Balance == b.Balance &&
		a.Affinity == b.Affinity &&
		a.Health == b.Health &&
		a.ClientAddress == b.ClientAddress &&
		a.OnBackendRemoved == b.OnBackendRemoved &&
		a.DrainTimeout == b.DrainTimeout &&
		a.Timeouts == b.Timeouts &&
		a.Offload == b.Offload &&
		a.Limits == b.Limits &&
		a.Steer == b.Steer &&
		a.SCTP == b.SCTP &&
		a.HealthCheckNodePort == b.HealthCheckNodePort &&
		a.HealthCheckName == b.HealthCheckName &&
		slices.Equal(a.AcceptProxy, b.AcceptProxy) &&
		slices.Equal(a.Allow, b.Allow) &&
		slices.Equal(a.Deny, b.Deny) &&
		equalSlices(a.Frontends, b.Frontends, equalFrontend) &&
		equalSlices(a.Backends, b.Backends, equalBackend)
}

// equalSlices is slices.EqualFunc without copying the elements.
func equalSlices[T any](a, b []T, equal func(a, b *T) bool) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if !equal(&a[i], &b[i]) {
			return false
		}
	}
	return true
}

func equalFrontend(a, b *lb.Frontend) bool {
	return a.FrontendKey == b.FrontendKey &&
		a.Subset == b.Subset &&
		a.SameFamily == b.SameFamily &&
		a.WhenNone == b.WhenNone &&
		a.ClientAddress == b.ClientAddress &&
		a.InsideSubset == b.InsideSubset &&
		slices.Equal(a.Inside, b.Inside) &&
		slices.Equal(a.More, b.More) &&
		slices.Equal(a.AllowSources, b.AllowSources) &&
		slices.Equal(a.KeepSources, b.KeepSources)
}

func equalBackend(a, b *lb.Backend) bool {
	return a.Address == b.Address &&
		a.Weight == b.Weight &&
		a.Priority == b.Priority &&
		a.MaxConnections == b.MaxConnections &&
		a.Local == b.Local &&
		a.Far == b.Far &&
		a.NotServing == b.NotServing &&
		a.Terminating == b.Terminating &&
		a.State == b.State &&
		a.Zone == b.Zone &&
		a.Node == b.Node &&
		slices.Equal(a.More, b.More)
}
