// Package client owns the caller's side of the API on the admin socket: it is
// what the commands use, and any Go program may. Lists are decoded as they
// arrive, so that a long one needs no more memory than its reader keeps.
//
// It refuses to guess: an instance that does not answer is an error that says
// what to do about it (ErrNotRunning).
package client
