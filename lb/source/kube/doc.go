// Package kube owns the translation of Kubernetes objects (Services and
// EndpointSlices, with what they need of the Node) into services of ours, from
// the API server or from files of such objects. It alone imports client-go.
//
// It upserts and deletes single objects and says when it has synced. A faulty
// object is reported by name, served as far as it can be, and stops no other
// (Fault). It programs nothing itself, and writes nothing to the API server but
// events.
//
// # Translation
//
// The translation is pure. ReadService, ReadSlice and ReadNode make of an object
// all that is wanted of it: addresses are parsed there, once, and names are
// shared; what they return can stand in an informer's cache in the object's
// place. A Translator holds these, joins slices and services, and Take gives
// what has changed since it was last asked, so that a change of one slice costs
// the merging of one service. docs/kubernetes.md has the semantics, row by row.
//
// A service of ours is one port of a Service: "namespace/name:port", or
// "namespace/name" for a port without a name.
//
// # Sources
//
// A Source feeds a Translator, and a store with what it makes: NewAPI follows an API
// server, NewFiles files of objects. What they hear goes into a queue, of each object
// the newest; one goroutine takes what has come together. Nothing is taken before
// everything has come once, and nothing is forgotten because an API server is away. No
// object is kept but by the Translator.
//
// Source.Run starts every goroutine and waits for it: one that translates, one for each
// kind that is followed or one for the files, and the client library's for events.
//
// Lock order: standing.mu, then files.mu; Source.mu, then the store's. The hook of the
// store (programmed) is called with none held.
//
// Kernel needs: inotify for files; without it they are looked at every few seconds.
package kube
