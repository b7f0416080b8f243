// Package cache owns directories of things that take long to make and that later runs,
// and other processes, can use: kernels for machines, programs for tests.
//
// What an entry is made from is its name; that two names never mean the same is its
// user's to see to. It refuses to download or build: whoever asks says how.
//
// One lock, of the directory, is held while an entry is looked up or made; an entry in
// use is locked for reading.
package cache
