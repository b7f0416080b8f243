// Package kube owns the translation of Kubernetes objects (Services and
// EndpointSlices, with what they need of Nodes) into services of ours, from the
// API server or from files of such objects. It alone imports client-go.
//
// It upserts and deletes single objects and says when it has synced; a faulty
// object is refused by name and stops no other. It will never program anything
// itself, and never write to the API server.
//
// There is no code here yet. The seam it fills is the one that package file fills
// for baton.yaml.
package kube
