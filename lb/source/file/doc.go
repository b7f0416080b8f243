// Package file owns baton.yaml: it parses the file, says line by line what is
// wrong with it, watches it, and gives its services to a store.
//
// One fault anywhere refuses the whole file: what runs goes on as it is. Every
// fault is reported, not only the first. Keys that Baton knows but does not
// serve yet are refused by name. It does no validation of its own where the
// model (lb.Service.Validate) has one: it finds the line for it.
//
// What is live: services and defaults. What needs a restart: admin, capture,
// source and zone (Config.RestartNeeded). A change of those is named in a
// warning, at every reload until the restart.
//
// Locks: Source.mu guards its Status only and is never held while the sink or
// the log is called. A Watcher has no lock: its state belongs to Run.
//
// Kernel needs: inotify. Where no inotify instance can be had, the file is
// looked at every few seconds instead.
package file
