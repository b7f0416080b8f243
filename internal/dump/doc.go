// Package dump owns what to do when a table of the kernel changes while it is read by rtnetlink: read it again.
//
// It refuses to know what is read, and to wait.
package dump
